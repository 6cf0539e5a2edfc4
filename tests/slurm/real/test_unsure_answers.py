"""What does not follow from an answer of Slurm: nothing is submitted twice, nothing cancelled comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import WAIT, Bench, over, running
from waiting import until

from perfsweep.slurm.jobs import JobState

pytestmark = pytest.mark.slow

Wrap = Callable[[str, str], None]


@pytest.fixture
def wrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bench: Bench) -> Wrap:
    """Put a program before one of Slurm's; its text calls the real one as ``$real``."""
    folder = tmp_path / "wrappers"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, body: str) -> None:
        real = shutil.which(name, path=os.environ["PATH"].partition(os.pathsep)[2])
        (folder / name).write_text(f"#!/bin/sh\nreal={real}\necho x >> {folder}/{name}.calls\n{body}\n")
        (folder / name).chmod(0o755)

    return write


def test_an_empty_answer_of_squeue_makes_nobody_vanish(bench: Bench, wrap: Wrap) -> None:
    ex = bench.executor()
    ex.submit([bench.job("runs", f"echo try >> tries; {WAIT}")])
    running(ex, "runs")
    array = bench.array(ex)
    ex._submitter.folder.joinpath(next(iter(ex.journal.submissions)), "0.beat").unlink(missing_ok=True)
    wrap("squeue", "exit 0")
    until(lambda: ex.poll() and ex.notes()["runs"] == "running", "the controller's own word")
    for _ in range(10):
        assert ex.poll()["runs"] is JobState.RUNNING
    (bench.folder / "go").touch()
    assert over(ex)["runs"] is JobState.ENDED
    assert bench.text("tries") == "try\n"
    assert bench.array(ex) == array


def pending(bench: Bench) -> tuple:
    """An array of which one element runs and three wait."""
    ex = bench.executor(array_parallelism=1)
    names = ("first", "second", "third", "fourth")
    ex.submit([bench.job(name, f"echo {name} >> ran; {WAIT}") for name in names])
    running(ex, "first")
    return ex, bench.array(ex)


def test_one_of_several_pending_elements_cancelled_by_hand_stays_cancelled(bench: Bench) -> None:
    """Slurm forgets such an element at once, without a trace, while its array goes on."""
    ex, array = pending(bench)
    bench.cluster.client("scancel", f"{array}_2")
    until(lambda: ex.poll()["third"] is JobState.CANCELLED, "our word for it")
    assert ex.notes()["third"] == "taken out of the queue before it started"
    (bench.folder / "go").touch()
    assert over(ex)["fourth"] is JobState.ENDED
    assert bench.text("ran").split() == ["first", "second", "fourth"]
    assert len(ex.journal.submissions) == 1


def refuse(wrap: Wrap, *programs: str) -> None:
    """As a site's wrappers do."""
    for program in programs:
        wrap(program, f"echo '{program}: access denied for users' >&2; exit 1")


@pytest.mark.parametrize("programs", [("squeue",), ("scontrol", "sacct")], ids=" and ".join)
def test_jobs_are_followed_to_their_end_without_some_of_slurms_programs(
    bench: Bench, wrap: Wrap, programs: tuple[str, ...]
) -> None:
    refuse(wrap, *programs)
    ex = bench.executor()
    ex.submit([bench.job("p000", "echo ran > ran; sleep 1")])
    assert over(ex) == {"p000": JobState.ENDED}
    assert bench.text("ran") == "ran\n"
    warned = " ".join(ex.warnings(bench.site()))
    for program in programs:
        assert f"{program} is not for you here ({program}: access denied for users)" in warned


def test_a_program_that_no_job_can_do_without_is_named(bench: Bench, wrap: Wrap) -> None:
    refuse(wrap, "srun")
    ex = bench.executor()
    ex.submit([bench.job("p000", "echo ran > ran")])
    assert over(ex) == {"p000": JobState.FAILED}
    assert "Slurm's output ends: srun: access denied for users" in ex.notes()["p000"]
    assert bench.text("ran") == ""
