"""What `perfsweep run` says of its one trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.commands.run import _trial_lines
from pipelines.store.records import Kind, Outcome, TrialRecord

RECORD = TrialRecord(
    arm="a" * 16, kind=Kind.TIMING, pack="p000", round=0, attempt=0, outcome=Outcome.OK, code="", method="m",
    units=70.0, iterations=7, region_ns=10**9, warmup_iterations=1, warmup_s=0.25, setup_s=1.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("steps", "set-up 1.50 s, warm-up 1 iterations in 0.25 s"),
        ("job", "set-up 1.50 s, a first job was discarded after 0.25 s"),
    ],
)
def test_a_discarded_job_is_not_called_warm_up(shape: str, said: str) -> None:
    lines = _trial_lines(RECORD, Path("runs/x"), shape)
    assert said in lines
    assert shape == "steps" or not any("warm" in line for line in lines)
