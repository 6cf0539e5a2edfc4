"""How windows are cut by a configuration and the levels of an arm, and which arms cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.batches import Shape
from perfsweep.workloads.latentwire.training.ranks import Ranks
from perfsweep.workloads.latentwire.training.sharding import check_shards
from perfsweep.workloads.latentwire.training.windows import window_shape

LEVELS = {
    "effective_batch": 6,
    "bucket": "off",
    "encoder_trim": "off",
    "answer_trim": "off",
    "compile": "off",
}
CONFIG = LatentWireConfig(preset="test", answer_tokens=5, early_tokens=2, max_bytes=99)
ALONE = Ranks("none")


def shape(ranks: Ranks = ALONE, examples: int = 100, **levels: Any) -> Shape:
    return window_shape(CONFIG, {**LEVELS, **levels}, ranks, examples, torch.float64)


BASE = Shape(effective=6, micro=6, answer_tokens=5, early_tokens=2, full_bytes=99, dtype=torch.float64)


@pytest.mark.parametrize(
    ("levels", "field", "value"),
    [
        ({}, "bucket", "off"),
        ({"bucket": "global"}, "bucket", "global"),
        ({"encoder_trim": "batch_max"}, "trim", True),
        ({"answer_trim": "batch_max"}, "trim_answers", True),
        ({"compile": "block"}, "static", True),
    ],
)
def test_each_level_shows_in_its_place_alone(levels: dict[str, Any], field: str, value: Any) -> None:
    found = vars(shape(**levels))
    assert found == {**vars(BASE), field: value}


@pytest.mark.parametrize(
    ("level", "place"),
    [("ddp", (2, 3)), ("fsdp", (2, 3)), ("model_per_gpu", (0, 1)), ("layer_split", (0, 1))],
)
def test_rows_are_split_where_every_rank_has_rows_of_its_own(level: str, place: tuple[int, int]) -> None:
    found = shape(Ranks(level, rank=2, world=3))
    assert (found.rank, found.world) == place


def test_a_window_has_as_many_rows_as_there_are_examples_at_most_and_as_ranks_at_least() -> None:
    shape(examples=6)
    with pytest.raises(
        ConfigError, match=r"effective_batch=6 is more than the 5 examples of workload\.data that"
    ):
        shape(examples=5)
    shape(Ranks("ddp", rank=0, world=6))
    with pytest.raises(ConfigError, match="effective_batch=6 leaves ranks without rows: use at least 7"):
        shape(Ranks("ddp", rank=0, world=7))


@pytest.mark.parametrize(
    ("examples", "world", "fill", "fits"),
    [(12, 3, "setup", True), (13, 3, "setup", False), (12, 4, "setup", False), (12, 3, "lazy", False)],
)
def test_ranks_that_share_layers_must_run_the_same_passes(
    examples: int, world: int, fill: str, fits: bool
) -> None:
    config = LatentWireConfig(preset="test", teacher_fill=fill)
    if fits:
        check_shards(config, BASE, examples, world)
        return
    sentence = f"effective_batch=6 must divide into {world} and divide the {examples} examples"
    with pytest.raises(ConfigError, match=sentence):
        check_shards(config, BASE, examples, world)


@pytest.mark.parametrize(
    ("level", "rank", "world", "own"),
    [
        ("none", 0, 1, [0, 1, 2]),
        ("model_per_gpu", 0, 2, [0, 2]),
        ("model_per_gpu", 1, 2, [1]),
        ("model_per_gpu", 0, 1, [0, 1, 2]),
        ("ddp", 1, 2, [0, 1, 2]),
    ],
)
def test_models_of_a_rank(level: str, rank: int, world: int, own: list[int]) -> None:
    assert Ranks(level, rank, world).own_models(3) == own


def test_alone_nothing_is_added_up_and_models_stand_in_their_order() -> None:
    assert ALONE.gathered({2: "c", 0: "a"}) == ["a", "c"]
    assert ALONE.least(5) == 5
    terms = torch.ones(2)
    assert ALONE.total(terms) is terms
    assert not ALONE.splits_rows
    assert not Ranks("ddp").splits_rows
    assert ALONE.device("cpu") == torch.device("cpu")
