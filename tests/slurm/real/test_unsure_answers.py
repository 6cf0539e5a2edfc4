"""What does not follow from an answer of Slurm: nothing is submitted twice, nothing cancelled comes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import WAIT, Bench, ends, over, running
from waiting import until

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.states import End

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


def test_an_sbatch_that_submits_and_says_that_it_timed_out_has_submitted(bench: Bench, wrap: Wrap) -> None:
    wrap(
        "sbatch",
        '$real "$@" > /dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out on'
        ' send/recv operation" >&2; exit 1',
    )
    ex = bench.executor()
    ex.submit([bench.job("p000", f"echo try >> tries; {WAIT}")])
    until(lambda: ex.poll() and bench.text("tries"), "the job whose number nobody was told")
    (bench.folder / "go").touch()
    assert over(ex) == {"p000": JobState.ENDED}
    assert bench.text("tries") == "try\n"
    queued = bench.cluster.client("squeue", "--me", "-h", "-t", "all", "-o", "%j").split()
    assert len([name for name in queued if name.split(".")[-1] in ex.journal.submissions]) == 1


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


def test_another_clusters_answers_say_nothing_about_our_jobs(bench: Bench, make_cluster) -> None:
    """Two clusters with one home: `wait` on the other one's login node."""
    other = Bench(make_cluster(name="beta", nodes=1), bench.folder)
    ex = bench.executor(heartbeat_s=3600)  # after its first, no sign of life comes
    ex.submit([bench.job("p000", f"echo try >> tries; {WAIT}")])
    running(ex, "p000")
    until(lambda: bench.text("tries"), "its first line")
    there = other.executor(heartbeat_s=0.1)
    there.follow(["p000"])
    until(lambda: there.poll() and there.held() == ["p000"], "its being held")
    assert there.notes() == {"p000": "on another cluster: follow it from a machine of that cluster"}
    assert other.said == [
        "packs of this sweep are on cluster dev, and this is beta: its Slurm knows nothing of them"
    ]
    for _ in range(10):
        there.poll()
    assert len(there.journal.submissions) == 1
    (bench.folder / "go").touch()
    assert over(ex) == {"p000": JobState.ENDED}
    until(lambda: there.poll() == {"p000": JobState.ENDED}, "what its own record says, wherever it ran")
    assert bench.text("tries") == "try\n"


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


def test_pending_elements_cancelled_by_another_command_stay_cancelled(bench: Bench) -> None:
    ex, _ = pending(bench)
    other = bench.executor()
    other.follow(["first", "second", "third", "fourth"])
    assert other.cancel(["second", "third"]) == 2
    until(lambda: ex.poll()["third"] is ex.poll()["second"] is JobState.CANCELLED, "what the other did")
    assert ex.notes()["third"] == "cancelled"
    (bench.folder / "go").touch()
    assert over(ex)["fourth"] is JobState.ENDED
    assert bench.text("ran").split() == ["first", "fourth"]


def test_what_was_cancelled_and_then_forgotten_does_not_come_back(bench: Bench) -> None:
    ex = bench.executor()
    ex.submit([bench.job("p000", f"echo try >> tries; {WAIT}")])
    running(ex, "p000")
    assert ex.cancel() == 1
    until(lambda: bench.show(f"{bench.array(ex)}_0")["JobState"] == "CANCELLED")
    again = bench.executor()
    again.follow(["p000"])
    again._client.queue = list  # hours later
    again._client.shown = lambda array=None: []
    assert over(again) == {"p000": JobState.CANCELLED}
    assert len(again.journal.submissions) == 1
    assert ends(again, "p000") == [End.CANCELLED]


def test_a_cancel_that_slurm_does_not_hear_is_done_by_whoever_follows_next(bench: Bench, wrap: Wrap) -> None:
    ex = bench.executor()
    ex.submit([bench.job("p000", WAIT)])
    running(ex, "p000")
    wrap("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ClusterError, match=r"nothing was cancelled yet\. It is noted: `perfsweep wait`"):
        ex.cancel()
    wrap("squeue", 'exec $real "$@"')
    again = bench.executor()
    again.follow(["p000"])
    assert over(again) == {"p000": JobState.CANCELLED}
    assert bench.show(f"{bench.array(ex)}_0")["JobState"] == "CANCELLED"
