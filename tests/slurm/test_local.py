"""The local queue: slots are never exceeded, every job has a state, and cancelling leaves nothing running."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stand_ins import job

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.slurm.local import InProcessExecutor, LocalExecutor, gpus_here, refuse_missing_nodes
from perfsweep.slurm.site import SiteProfile

DEADLINE_S = 120


def python(name: str, code: str, folder: Path, ranks: int = 1) -> Job:
    return Job(name, (sys.executable, "-c", code), folder / name / "log.txt", {"JOB": name}, ranks)


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


def test_jobs_do_not_read_what_is_typed_into_the_launchers_terminal(tmp_path: Path) -> None:
    typed, keyboard = os.pipe()
    before = os.dup(0)
    try:
        os.dup2(typed, 0)
        executor = LocalExecutor()
        executor.submit([python("job", "import sys; raise SystemExit(bool(sys.stdin.read()))", tmp_path)])
        os.write(keyboard, b"yes")
        os.close(keyboard)
        assert until(executor, ended) == {"job": JobState.ENDED}
        assert os.read(typed, 9) == b"yes"
    finally:
        os.dup2(before, 0)
        for descriptor in (typed, before):
            os.close(descriptor)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be shared out")
def test_jobs_that_run_at_once_have_cores_of_their_own(tmp_path: Path) -> None:
    """Arms of two packs that took turns on the same core would take each other's time."""
    ours = os.sched_getaffinity(0)
    executor = LocalExecutor(2)
    wait = "import os, pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)"
    code = f"import os; os.chdir({str(tmp_path)!r})\n{wait}\nprint(sorted(os.sched_getaffinity(0)))"
    executor.submit([python(f"j{i}", code, tmp_path) for i in range(3)])
    (tmp_path / "go").touch()
    until(executor, ended)
    found = [set(json.loads((tmp_path / f"j{i}" / "log.txt").read_text())) for i in range(3)]
    assert all(len(cores) == len(ours) // 2 for cores in found)
    assert found[0].isdisjoint(found[1])
    assert found[2] in found[:2], "the third has the share of one that has ended"


def test_a_job_that_ignores_being_asked_is_killed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("perfsweep.slurm.local.GRACE_S", 0.3)
    executor = LocalExecutor()
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True);"
        " time.sleep(600)"
    )
    executor.submit([python("stubborn", stubborn, tmp_path)])
    until(executor, lambda _: (tmp_path / "stubborn" / "log.txt").read_text() == "up\n")
    executor.cancel()
    assert executor.poll() == {"stubborn": JobState.CANCELLED}


def of(folder: Path, slots: int | None, gpus: int) -> LocalExecutor:
    return LocalExecutor.of(ExecutorContext(SiteProfile(), folder, "sweep", folder, slots, gpus))


@pytest.fixture(autouse=True)
def nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_job_has_a_gpu_for_each_of_its_ranks_or_those_that_its_one_process_uses(tmp_path: Path) -> None:
    executor, code = of(tmp_path, 1, 4), "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
    jobs = [python(f"new/j{i}", code, tmp_path, ranks) for i, ranks in enumerate((1, 2, 4, 1, 1))]
    executor.submit([*jobs[:3], replace(jobs[3], gpus=2), jobs[4]])
    assert set(until(executor, ended).values()) == {JobState.ENDED}
    assert [one.log.read_text().strip() for one in jobs] == ["0", "1,2", "3,0,1,2", "3,0", "1"]


def test_only_the_gpus_or_slices_of_the_allocation_are_used() -> None:
    assert gpus_here(2, "GPU-aa, GPU-bb") == ["GPU-aa", "GPU-bb"]
    assert gpus_here(2, "") == ["0", "1"]
    assert gpus_here(1, "MIG-a,MIG-b") == ["MIG-a", "MIG-b"]
    assert gpus_here(0, "MIG-a") == []


def test_more_slots_than_gpus_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"cluster\.slots=3 is more than the 2 GPUs"):
        of(tmp_path, 3, 2)


def test_on_cpu_ranks_take_a_slot_each_as_far_as_there_are(tmp_path: Path) -> None:
    executor = of(tmp_path, 2, 0)
    wait = (
        f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.02)"
    )
    jobs = [python(f"j{i}", wait, tmp_path, ranks) for i, ranks in enumerate((1, 2, 4, 1, 1))]
    executor.submit(jobs)
    states = executor.poll()
    assert [states[job.name] for job in jobs] == [JobState.RUNNING] + [JobState.PENDING] * 4
    (tmp_path / "go").touch()
    assert set(until(executor, ended).values()) == {JobState.ENDED}, "one of four ranks runs alone"


@pytest.mark.parametrize(
    ("environ", "said"),
    [({}, "this is one machine"), ({"SLURM_JOB_NODELIST": "n1"}, "this allocation has 1")],
)
def test_nodes_that_are_not_there_are_refused(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ClusterError, match=rf"cluster.nodes=2, and {said}; choose cluster=slurm"):
        refuse_missing_nodes(2, environ)
    refuse_missing_nodes(1, environ)
    refuse_missing_nodes(2, {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"})


def shell(name: str, script: str, folder: Path) -> Job:
    return Job(name, ("sh", "-c", script), folder / name / "log.txt", {}, 1)


def test_every_job_that_is_cancelled_is_asked_to_end_before_its_gpu_goes_to_the_next(tmp_path: Path) -> None:
    executor = LocalExecutor(2, ["0", "1"])
    script = "trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.01; done"
    executor.submit([shell(name, script, tmp_path) for name in "ab"])
    executor.submit([shell(name, "echo $CUDA_VISIBLE_DEVICES", tmp_path) for name in "cde"])
    logs = [tmp_path / name / "log.txt" for name in "ab"]
    until(executor, lambda _: all(log.read_text() == "up\n" for log in logs))
    assert executor.cancel("abd") == 3
    assert [log.read_text() for log in logs] == ["up\nasked\n"] * 2
    states = until(executor, ended)
    assert {name: state.value for name, state in states.items() if state is not JobState.CANCELLED} == {
        "c": "ended",
        "e": "ended",
    }
    assert {(tmp_path / name / "log.txt").read_text() for name in "ce"} == {"0\n", "1\n"}


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


def test_a_job_that_raises_has_failed_and_the_next_one_runs(
    executor: InProcessExecutor, ran: list[str]
) -> None:
    executor.submit([job("bad"), job("b")])
    with pytest.raises(ValueError, match="here"):
        executor.poll()
    assert executor.poll() == {"bad": JobState.FAILED, "b": JobState.ENDED}
    assert ran == ["bad", "b"]


@pytest.mark.parametrize(("names", "dropped"), [(None, ["b", "c"]), (["a", "b"], ["b"])])
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
