"""`perfsweep check`: which rules a workload breaks."""

from __future__ import annotations

from collections.abc import Sequence

from perfsweep.pipelines.check import checking as checking
from perfsweep.pipelines.config import composition
from perfsweep.workloads.errors import ConfigError


def check(workload: str, values: Sequence[str], toggles: str | None = None) -> int:
    """Run a workload briefly with these values of its configuration; status 1 where it breaks a rule.

    Raises
    ------
    ConfigError
        The configuration is none, or `toggles` holds no name.
    """
    only = None if toggles is None else [name.strip() for name in toggles.split(",") if name.strip()]
    if only == []:
        raise ConfigError("--toggles holds no name; write those of toggles, as --toggles amp,compile")
    cfg = composition.compose("run", [f"workload={workload}", *values])
    given = {
        text.partition("=")[0].removeprefix("measure.") for text in values if text.startswith("measure.")
    }
    return checking.check(cfg, given, only)
