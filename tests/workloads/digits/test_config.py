"""What a digits training accepts: the edge of every field."""

from __future__ import annotations

import math
from typing import Any

import pytest

from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "last", "beyond"),
    [
        ("model", "mlp", "cnn"),
        *((name, 1, 0) for name in ("width", "depth", "batch_size", "eval_every", "checkpoint_every")),
        ("width", 2, 2.0),
        ("lr", 1e9, math.inf),
        ("weight_decay", 0.0, -1e-9),
        ("train_fraction", 0.2, 0.0),
        ("train_fraction", 0.999, 1.0),
        ("batch_size", 1437, 1438),
    ],
)
def test_the_last_value_that_can_be_used_is_and_the_next_is_not(name: str, last: Any, beyond: Any) -> None:
    DigitsConfig(**{name: last})
    with pytest.raises(ConfigError, match=rf"^workload\.{name}=.* cannot be used: it must be "):
        DigitsConfig(**{name: beyond})


@pytest.mark.parametrize(("fraction", "size", "rows", "epoch"), [(0.8, 128, 1437, 11), (0.5, 449, 898, 2)])
def test_an_epoch_has_as_many_iterations_as_full_batches(
    fraction: float, size: int, rows: int, epoch: int
) -> None:
    config = DigitsConfig(train_fraction=fraction, batch_size=size)
    assert (config.train_rows, config.epoch) == (rows, epoch)
