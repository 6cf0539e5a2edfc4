"""`perfsweep check`: which rules a workload breaks."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.check import check as checking
from pipelines.config import composition


def check(workload: str, values: Sequence[str], toggles: str | None = None) -> int:
    """Run a workload briefly with these values of its configuration; status 1 where it breaks a rule."""
    cfg = composition.compose("run", [f"workload={workload}", *values])
    given = {
        text.partition("=")[0].removeprefix("measure.") for text in values if text.startswith("measure.")
    }
    only = [name.strip() for name in toggles.split(",")] if toggles else None
    return checking.check(cfg, given, only)
