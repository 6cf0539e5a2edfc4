"""Jobs in this process: one in each poll, in order, and a mistake is the caller's to see."""

from __future__ import annotations

from pathlib import Path

import pytest
from stand_ins import job

from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.slurm.local import InProcessExecutor
from perfsweep.slurm.site import SiteProfile


@pytest.fixture
def ran() -> list[str]:
    return []


@pytest.fixture
def executor(ran: list[str], tmp_path: Path) -> InProcessExecutor:
    def call(one: Job) -> None:
        ran.append(one.name)
        if one.name == "bad":
            raise ValueError("here")

    return InProcessExecutor.of(ExecutorContext(SiteProfile(), tmp_path, "demo", tmp_path, call=call))


def test_each_poll_runs_the_next_job(executor: InProcessExecutor, ran: list[str]) -> None:
    executor.submit([job("a"), job("b")])
    assert ran == []
    assert executor.poll() == {"a": JobState.ENDED, "b": JobState.PENDING}
    assert executor.poll() == {"a": JobState.ENDED, "b": JobState.ENDED}
    assert executor.poll() == {"a": JobState.ENDED, "b": JobState.ENDED}
    assert ran == ["a", "b"]


def test_a_job_that_raises_has_failed_and_the_next_one_runs(
    executor: InProcessExecutor, ran: list[str]
) -> None:
    executor.submit([job("bad"), job("b")])
    with pytest.raises(ValueError, match="here"):
        executor.poll()
    assert executor.poll() == {"bad": JobState.FAILED, "b": JobState.ENDED}
    assert ran == ["bad", "b"]


@pytest.mark.parametrize(("names", "dropped"), [(None, ["b", "c"]), (["a", "b"], ["b"]), ([], [])])
def test_what_has_not_run_can_be_dropped(
    executor: InProcessExecutor, names: list[str] | None, dropped: list[str]
) -> None:
    executor.submit([job("a"), job("b"), job("c")])
    executor.poll()
    assert executor.cancel(names) == len(dropped)
    for _ in range(2):
        states = executor.poll()
    assert states["a"] is JobState.ENDED
    assert [name for name, state in states.items() if state is JobState.CANCELLED] == dropped
    assert all(state.over for state in states.values())


def test_jobs_of_this_process_end_with_it_and_leave_nothing_to_follow(
    executor: InProcessExecutor, tmp_path: Path
) -> None:
    assert not executor.remote
    assert (executor.held(), executor.notes(), executor.counts(), executor.texts([])) == ([], {}, "", [])
    assert (executor.submitted(tmp_path), executor.outputs(tmp_path), executor.look()) == ({}, {}, {})
    assert executor.refusal(SiteProfile(), {}) is None and executor.warnings(SiteProfile()) == []
