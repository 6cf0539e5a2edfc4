"""What a Probe1D job accepts: the edge of every field."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.probe1d.config import Probe1DConfig


@pytest.mark.parametrize(
    ("name", "last", "beyond", "rule"),
    [
        ("tol", 1e-300, 0.0, "between 0 and 1"),
        ("tol", 0.999, 1.0, "between 0 and 1"),
        ("ridge", 1e-14, 9e-15, "null or from 1e-14 to below 1"),
        ("ridge", 0.999, 1.0, "null or from 1e-14 to below 1"),
        ("data_seed", 0, -1, "a whole number from 0"),
        *(
            (name, 1, 0, "null or a whole number from 1")
            for name in ("classes", "max_iter", "slabs", "memory_mb")
        ),
        ("slabs", 2, 2.0, "null or a whole number from 1"),
        ("max_iter", 59_999, 60_000, "below 60000"),
        ("storage_dtype", "float16", "bfloat16", "one of: float32, float16, float64"),
    ],
)
def test_the_last_value_that_can_be_used_is_and_the_next_is_not(
    name: str, last: Any, beyond: Any, rule: str
) -> None:
    Probe1DConfig(**{name: last})
    with pytest.raises(ConfigError, match=rf"^workload\.{name}={beyond} cannot be used: it must be {rule}$"):
        Probe1DConfig(**{name: beyond})
