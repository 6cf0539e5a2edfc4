"""`perfsweep history`: arms over code versions."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.commands.compare import baseline_at
from pipelines.exits import DONE, SOME_FAILED
from pipelines.report import history as reporting
from pipelines.terminal import console_here


def history(versions: Sequence[str], arm: Sequence[str], margin: float) -> int:
    """Print arms over sweeps or stored baselines, oldest first; status 1 says that an arm became slower."""
    slower = reporting.show(console_here(), [baseline_at(path) for path in versions], arm, margin)
    return SOME_FAILED if slower else DONE
