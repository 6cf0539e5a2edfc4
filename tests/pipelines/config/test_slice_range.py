"""What `profile.slice` may say."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.config.slice_range import NAMES, parse
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "meant"), [*zip(NAMES, NAMES, strict=True), ("0:1", (0, 1)), ("10:40", (10, 40))]
)
def test_a_name_or_a_range(text: str, meant: object) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "=x is unknown; choose from: auto, step, job, first, or"),
        ("1:", "unknown"),
        ("a1:2", "unknown"),
        ("1:2b", "unknown"),
        ("3:3", "=3:3 is empty: a range ends after"),
        ("4:3", "is empty"),
    ],
)
def test_anything_else_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"profile.slice.*{says}"):
        parse(text)
