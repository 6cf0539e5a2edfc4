"""Rows of the log of a pass, warnings of failed steps, and what each log waits for."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
import torch

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.maths.pass_log import PASSES_PER_COPY, DeviceLog, PassFacts, WaitingLog


def facts(failed: list[bool] | None, loss: bool = True) -> PassFacts:
    return PassFacts(
        torch.tensor([1.0, 2.0, 6.0]) if loss else None,
        g0=torch.tensor([0.5, -4.0, 0.0]),
        g1=torch.tensor([-2.0, 1.0, -3.0]),
        lam=torch.tensor([10.0, 20.0, 60.0]),
        failed=None if failed is None else torch.tensor(failed),
    )


FAILED = {"n_fail": 2, "lambda_max": 60.0}


@pytest.mark.parametrize(
    ("given", "row", "reads"),
    [
        (facts(None), {"loss": 3.0, "gradient": 4.0}, 2),
        (facts([False, True, True]), {"loss": 3.0, "gradient": 4.0, **FAILED}, 8),
        (facts(None, loss=False), {"lambda": 30.0, "gradient": 4.0}, 2),
    ],
)
def test_a_waiting_log_reads_what_it_shows(given: PassFacts, row: dict[str, float], reads: int) -> None:
    rows: list[Any] = []
    counts = Counts()
    log = WaitingLog(counts, rows.append, debug=True)
    log.begin(5, torch.device("cpu"))
    log.write(given)
    assert rows == [row]
    assert counts.values["host_syncs"] == reads
    assert counts.values["device_syncs"] == 0  # there is no device to wait for
    assert counts.values["n_fail"] == row.get("n_fail", 0)
    assert log.any_left(torch.tensor([False, True]))
    assert not log.any_left(torch.tensor([False, False]))
    assert log.stopped(torch.tensor(True))
    assert not log.stopped(torch.tensor(False))
    log.finish()


def test_a_warning_says_how_many_pairs_and_how_damped(caplog: pytest.LogCaptureFixture) -> None:
    counts = Counts()
    with caplog.at_level(logging.WARNING, logger="perfsweep.probe1d"):
        WaitingLog(counts, lambda row: None, debug=False).write(facts([False, True, True]))
    (record,) = caplog.records
    assert record.getMessage() == "LM step fallback: n_fail=2 lam_min=20 lam_max=60 grad_max=(4,3)"
    assert (counts.values["warnings"], counts.values["failing_passes"]) == (1, 1)


def test_a_quiet_log_stops_with_the_next_copy_and_logs_no_pass_beyond_the_stop() -> None:
    rows: list[Any] = []
    counts = Counts()
    log = DeviceLog(counts, rows.append)
    log.begin(20, torch.device("cpu"))
    stopped = []
    for number in range(PASSES_PER_COPY):
        log.write(facts(None))
        stopped.append(log.stopped(torch.tensor(number == 2)))
    assert stopped == [False] * 7 + [True]
    assert counts.values["async_copies"] == 1
    log.finish()
    assert rows == [{"loss": 3.0, "gradient": 4.0}] * 3


@pytest.mark.parametrize("failed", [None, [False, True, True]])
def test_a_quiet_log_hands_over_whole_rows_in_double_precision_at_the_end(failed, caplog) -> None:
    rows: list[Any] = []
    counts = Counts()
    log = DeviceLog(counts, rows.append)
    log.begin(2, torch.device("cpu"))
    given = facts(failed)
    for number in range(3):
        log.write(dataclasses.replace(given, g0=given.g0.double() + number + 0.1))
        assert log.any_left(torch.tensor([False])) and not log.stopped(torch.tensor(False))
    log.finish()
    more = FAILED if failed else {}
    assert rows == [
        {"loss": 3.0, "gradient": abs(-4.0 + n + 0.1) if n < 1 else 3.0, **more} for n in range(3)
    ]
    assert counts.values["host_syncs"] == 1 and counts.values["async_copies"] == 0
    assert (counts.values["n_fail"], counts.values["warnings"]) == ((6, 3) if failed else (0, 0))
