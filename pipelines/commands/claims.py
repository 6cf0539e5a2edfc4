"""`perfsweep claims`: the ledger of the reports' claims."""

from __future__ import annotations

import sys
from pathlib import Path

from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.report import ledger
from perfsweep.pipelines.terminal import console_here
from perfsweep.pipelines.trial.machine import environment

RESULTS = Path("docs") / "results"
"""Committed result pages, from the repository root."""


def claims(workload: str | None, runs: str, markdown: bool) -> int:
    """Print every claim of one workload's reports, or of all, with its ruling under `runs`, or as a page."""
    if markdown:
        sys.stdout.write(ledger.page(workload, RESULTS))
    else:
        devices = executor_choice.devices_in_reach(environment.device_facts())
        ledger.show(console_here(), workload, Path(runs), devices)
    return DONE
