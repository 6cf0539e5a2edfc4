"""`perfsweep claims`: the ledger of the reports' claims."""

from __future__ import annotations

from pathlib import Path

from pipelines.exits import DONE
from pipelines.report import ledger
from pipelines.terminal import console_here


def claims(workload: str | None, runs: str) -> int:
    """Print every claim of one workload's reports, or of all, with its ruling under `runs`."""
    ledger.show(console_here(), workload, Path(runs))
    return DONE
