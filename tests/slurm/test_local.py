"""The local queue: slots are never exceeded, every job has a state, and cancelling leaves nothing running."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm.errors import ClusterError
from slurm.jobs import Job, JobState
from slurm.local import LocalExecutor, slots_here

DEADLINE_S = 120


def python(name: str, code: str, folder: Path) -> Job:
    return Job(name, (sys.executable, "-c", code), folder / name / "log.txt", {"JOB": name})


def until(executor: LocalExecutor, condition: Callable[[dict[str, JobState]], bool]) -> dict[str, JobState]:
    """Poll until a condition on the states holds."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        states = executor.poll()
        if condition(states):
            return states
        time.sleep(0.02)
    raise AssertionError(f"not within {DEADLINE_S} s: {executor.poll()}")


def ended(states: dict[str, JobState]) -> bool:
    return all(state not in (JobState.PENDING, JobState.RUNNING) for state in states.values())


def test_jobs_end_with_a_state_and_their_output_in_their_log(tmp_path: Path) -> None:
    executor = LocalExecutor()
    executor.submit(
        [
            python("good", "import os; print('I am', os.environ['JOB'])", tmp_path),
            python("bad", "raise SystemExit(3)", tmp_path),
        ]
    )
    assert until(executor, ended) == {"good": JobState.ENDED, "bad": JobState.FAILED}
    assert (tmp_path / "good" / "log.txt").read_text() == "I am good\n"


def test_no_more_jobs_run_at_once_than_there_are_slots(tmp_path: Path) -> None:
    executor = LocalExecutor([{"SLOT": "0"}, {"SLOT": "1"}])
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)"
    code = f"import os; os.chdir({str(tmp_path)!r}); print(os.environ['SLOT'], flush=True)\n{wait}"
    executor.submit([python(f"j{i}", code, tmp_path) for i in range(3)])
    logs = [tmp_path / f"j{i}" / "log.txt" for i in range(2)]
    states = until(executor, lambda _: all(log.read_text() for log in logs))
    assert sorted(states.values()) == [JobState.PENDING, JobState.RUNNING, JobState.RUNNING]
    (tmp_path / "go").touch()
    assert set(until(executor, ended).values()) == {JobState.ENDED}
    assert {log.read_text().strip() for log in logs} == {"0", "1"}


def test_cancelling_ends_running_jobs_and_drops_waiting_ones(tmp_path: Path) -> None:
    executor = LocalExecutor()
    executor.submit(
        [
            python(name, "import time; print('up', flush=True); time.sleep(600)", tmp_path)
            for name in ("running", "waiting")
        ]
    )
    until(executor, lambda _: (tmp_path / "running" / "log.txt").read_text() == "up\n")
    executor.cancel()
    assert executor.poll() == {"running": JobState.CANCELLED, "waiting": JobState.CANCELLED}
    assert not (tmp_path / "waiting").exists()


def test_a_job_that_ignores_being_asked_is_killed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("slurm.local.GRACE_S", 0.3)
    executor = LocalExecutor()
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
        " time.sleep(600)"
    )
    executor.submit([python("stubborn", stubborn, tmp_path)])
    until(executor, lambda _: (tmp_path / "stubborn" / "log.txt").read_text() == "up\n")
    executor.cancel()
    assert executor.poll() == {"stubborn": JobState.CANCELLED}


def test_cancelling_one_job_leaves_its_slot_to_the_next(tmp_path: Path) -> None:
    executor = LocalExecutor()
    executor.submit(
        [python("long", "import time; time.sleep(600)", tmp_path), python("short", "pass", tmp_path)]
    )
    assert executor.cancel(["long"]) == 1
    assert until(executor, ended) == {"long": JobState.CANCELLED, "short": JobState.ENDED}


def test_a_cpu_has_one_slot_unless_more_are_asked_for() -> None:
    assert slots_here(None, 0, "") == [{}]
    assert slots_here(2, 0, "") == [{}, {}]


def visible(slots: list[dict[str, str]]) -> list[str]:
    return [slot["CUDA_VISIBLE_DEVICES"] for slot in slots]


def test_every_gpu_has_a_slot() -> None:
    assert visible(slots_here(None, 2, "")) == ["0", "1"]


@pytest.mark.parametrize("ours", ["4,6", "GPU-aa, GPU-bb"])
def test_only_the_gpus_of_the_allocation_are_used(ours: str) -> None:
    names = [name.strip() for name in ours.split(",")]
    assert visible(slots_here(None, 2, ours)) == names
    assert visible(slots_here(1, 2, ours)) == names[:1]


def test_more_slots_than_gpus_are_refused() -> None:
    with pytest.raises(ClusterError, match=r"cluster\.slots=3 is more than the 2 GPUs"):
        slots_here(3, 2, "")
