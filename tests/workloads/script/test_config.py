"""What may be said of a script that is measured."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.config import ScriptConfig


@pytest.mark.parametrize(
    ("name", "last", "beyond", "rule"),
    [
        ("every", 1, 0, "a whole number from 1"),
        ("writes", "allow", "some", "one of scratch, refuse, allow"),
        (
            "iteration",
            "a:b",
            "a.b",
            "one of auto, optimizer.step, backward, loader, marks, or package.module:function",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(name: str, last: Any, beyond: Any, rule: str) -> None:
    ScriptConfig(**{name: last})
    with pytest.raises(ConfigError, match=rf"^workload\.{name}=.* cannot be used: it must be {rule}"):
        ScriptConfig(**{name: beyond})
