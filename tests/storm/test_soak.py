"""What a soak calls growth: what the tool takes more of, and not what a machine of another speed takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from storm.processes import Role
from storm.soak import Sample, grown, in_loops, times

TRIALS = 400


def shares(grows: Callable[[int], float], fresh_mib: float = 100.0) -> dict[str, float]:
    """Growth of a command whose memory is this at so many trials, with 4 ms of processor time for each."""
    samples = [Sample(Role.COMMAND, n, grows(n), 8, 0.004 * n) for n in range(0, TRIALS + 1, 10)]
    return {one.what: one.share for one in grown(samples, fresh_mib, [2.0] * TRIALS)}


def records(folder: Path, time_ms: Callable[[int], float], loop_ms: Callable[[int], float]) -> Path:
    """A sweep's trials, one after the other."""
    now = 0.0
    for number in range(TRIALS):
        file = folder / "trials" / "arm" / f"p000-r{number:04}-a0" / "record.json"
        file.parent.mkdir(parents=True)
        ended = now + time_ms(number) / 1e3
        row = {"started": now, "ended": ended, "calibration_ns": loop_ms(number) * 1e6}
        file.write_text(json.dumps(row))
        now = ended
    return folder


def test_a_command_that_keeps_what_it_reads_grows_beyond_one_that_has_just_read_it() -> None:
    assert shares(lambda n: 60 + 0.1 * n)["memory of the command"] < 0.1, "as much as it must read"
    assert shares(lambda n: 60 + 0.3 * n)["memory of the command"] > 0.5


def test_processor_time_and_handles_are_of_a_trial() -> None:
    found = shares(lambda n: 50.0)
    assert found["processor time of the command"] == pytest.approx(0.0)
    assert found["file handles of the command"] == 0.0


@pytest.mark.parametrize(
    ("time_ms", "growth"),
    [
        (lambda n: 20.0 * (1 + (n >= 250)), 0.0),  # the machine runs at half its speed
        (lambda n: 20.0 * (1 + (n >= 250)) * (1 + n / TRIALS), 0.36),
    ],
)
def test_times_are_held_against_the_speed_of_the_machine(
    tmp_path: Path, time_ms: Callable[[int], float], growth: float
) -> None:
    found = times(in_loops(records(tmp_path, time_ms, lambda n: 2.0 * (1 + (n >= 250)))))
    assert {one.what: pytest.approx(one.share, abs=0.01) for one in found} == {
        "time from trial to trial": growth,
        "time of a trial": growth,
    }
