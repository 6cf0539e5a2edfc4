"""`perfsweep check`: which rules a workload breaks."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.check import check as checking
from pipelines.config import composition


def check(workload: str, values: Sequence[str]) -> int:
    """Run a workload briefly with these values of its configuration; status 1 where it breaks a rule."""
    return checking.check(composition.compose("run", [f"workload={workload}", *values]))
