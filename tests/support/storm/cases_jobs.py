"""The first list, F1 to F11: what may befall a job and its node while it runs, each played on a sweep."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen

from bench import alive

from storm import invariants, slurm_faults
from storm.stage import LONG, ONE, TWO, Stage, case, until

HELD = "cluster.sbatch=['--begin=now+3600']"
"""A job that waits until somebody lets it start."""


def let_start(stage: Stage) -> None:
    """Let a job start that waits for its time."""
    array = stage.array
    until(lambda: stage.state(f"{array}_0") == "PENDING", "the pending job")
    stage.bench.cluster.client("scontrol", "update", f"JobId={array}", "StartTime=now")


@case("F1", "exception in the body", "failed, with type and message; the other arm is measured", status=1)
def exception(stage: Stage) -> str:
    text = stage.ended(stage.sweep(*ONE, "axes.trouble=[late]", "axes.work=[double]"), 1)
    assert "ValueError: the toy failed while being timed" in text, text[-400:]
    failures = [one.values["failure"] for one in invariants.trials(stage.folder) if not one.ok]
    told = {(one["type"], one["message"]) for one in failures}
    assert told == {("ValueError", "the toy failed while being timed")}, told
    assert stage.ends() == ["done"] and len(stage.events("submitting")) == 1
    return f"status 1; type and message in {len(failures)} records and on the terminal"


@case("F2", "SIGKILL of the body, SIGSEGV of its retry", "no result, one retry, then final")
def killed_body(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    stage.strike("kill_pack")
    until(lambda: len(stage.attempts()) == 2, "the retry")
    os.kill(stage.pid(), signal.SIGSEGV)
    text = stage.ended(process, 1)
    assert "submitting it again" in text, text[-400:]
    assert "its process was ended by signal 11" in text, text[-400:]
    assert stage.ends() == ["no result", "no result"], stage.ends()
    return "told, submitted once more, then final; the same command finishes it"


@case("F3", "a running job is cancelled", "cancelled, not retried; the same command goes on")
def cancelled(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    stage.strike("cancel_job")
    stage.ended(process, 1)
    assert stage.ends() == ["cancelled"] and len(stage.events("submitting")) == 1, stage.ends()
    return "status 1, cancelled, tried once"


@case("F4", "one pending element is cancelled", "cancelled, no hang; the other element runs")
def cancelled_pending(stage: Stage) -> str:
    process = stage.sweep(*TWO, "cluster.array_parallelism=1")
    stage.runs(stage.element())
    assert stage.state(stage.element(1)) == "PENDING"
    stage.bench.cluster.client("scancel", stage.element(1))
    stage.ended(process, 1)
    assert (stage.ends(), stage.ends("p001")) == (["done"], ["cancelled"]), stage.ends("p001")
    assert len(stage.events("submitting")) == 1
    return "status 1, p001 cancelled, p000 done"


@case("F5", "the result appears 10 s after COMPLETED", "done, no second submission")
def late_result(stage: Stage) -> str:
    process = stage.sweep(*ONE, "cluster.fs_delay_s=40")
    stage.round_done()
    element = stage.element()
    process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: stage.state(element) == "COMPLETED", "the job's end")
        (end,) = stage.folder.glob("submissions/*/0.end-0.json")
        end = end.rename(end.with_suffix(".late"))
    finally:
        process.send_signal(signal.SIGCONT)
    time.sleep(10)
    assert process.poll() is None, "it ended before the result was there"
    end.rename(end.with_suffix(".json"))
    stage.ended(process)
    assert len(stage.events("submitting")) == 1 and stage.ends() == ["done"]
    return "waited for, done"


@case("F6", "leftover temporary files", "ignored, and gone at the end")
def leftovers(stage: Stage) -> str:
    for place in (stage.folder / "packs" / "p000" / "attempts", stage.folder / "submissions"):
        place.mkdir(parents=True)
        (place / ".0.json.4711.deadbeef.tmp").write_text("{")
    (stage.folder / "submissions" / "12_submitted.pkl.save_tmp").write_text("half")
    stage.ended(stage.sweep(*ONE))
    assert [one["restarts"] for one in stage.attempts()] == [0]
    return "ignored"


@case("F7", "scontrol requeue while it runs", "one record of each trial; what the first start finished stays")
def requeued(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    stage.strike("requeue_job")
    stage.bench.start_now(stage.element())
    stage.ended(process)
    assert len(stage.events("submitting")) == 1 and stage.ends() == ["done"], stage.ends()
    _first_round_kept(stage)
    return "continued in its requeue, one result"


def _first_round_kept(stage: Stage) -> None:
    """The second start of the job went on where the first had stopped."""
    assert [one["restarts"] for one in stage.attempts()] == [0, 1], stage.attempts()
    assert len(list(stage.folder.glob("trials/*/p000-r000-a0/record.json"))) == 2
    assert not list(stage.folder.glob("trials/*/p000-r000-a1")), "a finished round was repeated"
    assert list(stage.folder.glob("trials/*/p000-r005-a1/record.json")), "the second start measured nothing"


def _preempted(stage: Stage, *overrides: str) -> tuple[Popen[bytes], str]:
    process = stage.sweep(*ONE, "cluster.partition=preemptible", *overrides)
    stage.round_done(1)
    element = stage.element()
    node = stage.bench.show(element)["NodeList"]
    better = ("sbatch", "--wrap=true", "-p", "gpu", "-w", node, "--exclusive", "-o", "/dev/null")
    stage.bench.cluster.client(*better)
    return process, element


@case("F8", "preemption without grace, and no requeue by Slurm", "submitted again, finished rounds kept")
def preempted(stage: Stage) -> str:
    process, element = _preempted(stage, "cluster.requeue=false")
    until(lambda: stage.state(element) == "PREEMPTED", "preemption")
    stage.ended(process)
    assert stage.ends() == ["preempted", "done"], stage.ends()
    assert not list(stage.folder.glob("trials/*/p000-r000-a1")), "a finished round was repeated"
    return "submitted again, finished rounds kept"


@case("F9", "preemption of a timing pack", "the interrupted round is repeated, finished ones are kept")
def preempted_pack(stage: Stage) -> str:
    process, element = _preempted(stage)
    until(lambda: stage.bench.show(element)["Restarts"] == "1", "preemption")
    stage.bench.start_now(element)
    stage.ended(process)
    _first_round_kept(stage)
    assert len(stage.events("submitting")) == 1
    return "continued in its requeue, finished rounds kept"


@case("F10", "kill -9 slurmd while it runs", "two live copies, one record of each trial")
def lost_daemon(stage: Stage) -> str:
    process = stage.sweep(*LONG, "measure.rounds=24")
    stage.round_done()
    element = stage.element()
    node, first = stage.bench.show(element)["NodeList"], stage.pid()
    stage.cluster.kill(f"slurmd-{node}")
    until(lambda: stage.bench.show(element)["Restarts"] == "1", "Slurm's noticing", 120)
    assert alive(first), "the first copy ended with its daemon: there never were two"
    stage.requeues_until(lambda: len(stage.attempts()) == 2, "the second copy")
    stage.ended(process)
    assert len(stage.events("submitting")) == 1 and stage.ends() == ["done"], stage.ends()
    return "a second copy took over from the first, which lived; one record of each trial"


@case("F11", "a node is set down", "Slurm's own requeue goes on, on the other node")
def node_set_down(stage: Stage) -> str:
    process = stage.sweep(*ONE)
    stage.round_done()
    element = stage.element()
    with _down(stage) as node:
        until(lambda: stage.bench.show(element)["Restarts"] == "1", "the requeue")
        stage.requeues_until(lambda: len(stage.attempts()) == 2, "the second start")
        stage.ended(process)
        assert stage.bench.show(element)["NodeList"] != node
    assert len(stage.events("submitting")) == 1
    _first_round_kept(stage)
    return "continued in its requeue, on the other node"


@case("F11b", "a node is set down, and Slurm must not requeue", "submitted again, on the other node")
def node_set_down_for_good(stage: Stage) -> str:
    process = stage.sweep(*ONE, "cluster.requeue=false")
    stage.round_done()
    with _down(stage) as node:
        stage.ended(process)
        assert stage.bench.show(stage.element())["NodeList"] != node
    assert stage.ends() == ["node failed", "done"], stage.ends()
    return "submitted again, done on the other node"


@contextmanager
def _down(stage: Stage) -> Iterator[str]:
    """Set the node of the running job down for as long as the block lasts."""
    node = stage.bench.show(stage.element())["NodeList"]
    for state in ("DOWN", "DRAIN"):  # drained too, as it would come back by itself when its daemon reports
        stage.bench.cluster.client("scontrol", "update", f"NodeName={node}", f"State={state}", "Reason=storm")
    try:
        yield node
    finally:
        slurm_faults.resume(stage.cluster, node)
