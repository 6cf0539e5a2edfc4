"""How windows are cut by a configuration and the levels of an arm, and which arms cannot be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bare_arms import bare

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.batches import Shape

CONFIG = {"answer_tokens": 5, "early_tokens": 2, "max_bytes": 99}


def made_for(rank: int = 0, world: int = 1, examples: int = 100, **levels: Any) -> Any:
    made = bare({"effective_batch": 6, **levels}, rank=rank, world=world, **CONFIG)
    made.corpus = [None] * examples
    queries = SimpleNamespace(dtype=torch.float64)
    made.encoder = SimpleNamespace(pooler=SimpleNamespace(queries=queries))
    return made


def shape(**given: Any) -> Shape:
    return made_for(**given).window_shape()


BASE = Shape(effective=6, micro=6, answer_tokens=5, early_tokens=2, full_bytes=99, dtype=torch.float64)


@pytest.mark.parametrize(
    ("levels", "field", "value"),
    [
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
    ("level", "place"), [("ddp", (2, 3)), ("fsdp", (2, 3)), ("model_per_gpu", (0, 1)), ("single", (0, 1))]
)
def test_rows_are_split_where_every_rank_has_rows_of_its_own(level: str, place: tuple[int, int]) -> None:
    found = shape(rank=2, world=3, parallel=level)
    assert (found.rank, found.world) == place


def test_a_window_has_as_many_rows_as_there_are_examples_at_most_and_as_ranks_at_least() -> None:
    shape(examples=6)
    with pytest.raises(
        ConfigError, match=r"effective_batch=6 is more than the 5 examples of workload\.data that"
    ):
        shape(examples=5)
    shape(parallel="ddp", world=6)
    with pytest.raises(ConfigError, match="effective_batch=6 leaves ranks without rows: use at least 7"):
        shape(parallel="ddp", world=7)


@pytest.mark.parametrize(
    ("level", "rank", "world", "own"),
    [
        ("single", 0, 1, [0, 1, 2]),
        ("model_per_gpu", 0, 2, [0, 2]),
        ("model_per_gpu", 1, 2, [1]),
        ("ddp", 1, 2, [0, 1, 2]),
    ],
)
def test_models_of_a_rank(level: str, rank: int, world: int, own: list[int]) -> None:
    assert made_for(rank, world, parallel=level).own_models(3) == own
