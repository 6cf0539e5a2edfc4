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


def test_a_window_has_as_many_rows_as_there_are_examples_at_most_and_as_ranks_at_least() -> None:
    shape(examples=6)
    with pytest.raises(
        ConfigError, match=r"effective_batch=6 is more than the 5 examples of workload\.data that"
    ):
        shape(examples=5)
    shape(parallel="ddp", world=6)
    with pytest.raises(ConfigError, match="effective_batch=6 leaves ranks without rows: use at least 7"):
        shape(parallel="ddp", world=7)
