"""What a user reads when a sweep on a real Slurm did not go well: no status 0, and always a reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from bench import WAIT, Bench, ends, over, running
from waiting import until

from perfsweep.pipelines.store import code_snapshot
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

pytestmark = pytest.mark.slow

SLOW_TOY = ("workload.products=300", "measure.iterations=240")


def toy(bench: Bench) -> Path:
    return bench.folder / "runs" / "toy"


def words(text: str) -> str:
    """Words as they follow one another, however a terminal broke their lines."""
    return " ".join(text.split())


def test_a_sweep_whose_trials_raise_ends_with_status_1_and_the_users_own_exception(bench: Bench) -> None:
    exception, trials = "ValueError: the toy failed while being timed", "2 ok, 2 failed trials"
    done = bench.perfsweep(*bench.sweep("toggles.trouble=late"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"failed: {exception}" in words(done.stdout)
    assert "spinner.py:" in "".join(done.stdout.split()), "the line that raised"
    logs = [file.read_text() for file in toy(bench).glob("trials/*/*/log.txt")]
    assert any("Traceback (most recent call last)" in text and exception in text for text in logs)
    assert "rounds are missing: 4 of 6 in p000, since every arm failed" in words(done.stdout)
    report = bench.text("runs/toy/report.html")
    assert exception in report and "rounds are missing: 4 of 6 in p000" in report
    assert trials in report
    assert "spinner.py:" in report, "the line that raised"
    again = bench.perfsweep("compare", "runs/toy")
    assert again.returncode == 1 and f"not started again ({exception})" in words(again.stdout)
    assert bench.perfsweep("wait", "runs/toy").returncode == 1


def test_evidence_that_crashes_fails_the_sweep_though_its_rounds_are_there(bench: Bench) -> None:
    done = bench.perfsweep(*bench.sweep("axes.trouble=[exit]", "axes.work=[double]"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "trouble=exit: failed: " in done.stdout
    assert "Failed trials" in done.stdout and "evidence" in bench.text("runs/toy/report.html")


def test_leaving_while_packs_were_not_submitted_yet_says_how_many(bench: Bench) -> None:
    options = ("axes.slab=[2,3,4,5]", "cluster.arms_per_pack=2", "cluster.max_submit=1")
    first = bench.start(*bench.sweep(*SLOW_TOY, *options))
    until(lambda: bench.records(), "a first record")
    first.send_signal(signal.SIGINT)
    output, _ = first.communicate(timeout=120)
    packs = bench.text("runs/toy/manifest.jsonl").count('"row": "pack"')
    journal = Journal(toy(bench) / "submissions.jsonl")
    left = packs - len({name for one in journal.submissions.values() for name in one.names})
    assert left > 0
    assert f"submitted jobs go on, but {left} packs were not submitted yet" in words(output)
    status = bench.perfsweep("status", "runs/toy")
    (line,) = [line for line in status.stdout.splitlines() if " p000 " in line]
    assert " running " in line, status.stdout
    assert status.stdout.count("not submitted") == left
    assert bench.perfsweep("cancel", "runs/toy").returncode == 0


def test_a_snapshot_that_was_changed_while_the_job_waited_is_refused(bench: Bench) -> None:
    first = bench.start(*bench.sweep("cluster.sbatch=['--begin=now+3600']"))
    journal = toy(bench) / "submissions.jsonl"
    until(lambda: '"submitted"' in bench.text("runs/toy/submissions.jsonl"), "the submission")
    archive = code_snapshot.latest(toy(bench) / "code")
    archive.write_bytes(archive.read_bytes() + b"a byte more")
    (array,) = [s.array for s in Journal(journal).submissions.values()]
    bench.cluster.client("scontrol", "update", f"JobId={array}", "StartTime=now")
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 1, output
    assert f"{archive} is not the code that this job was submitted with" in words(output)
    assert bench.records() == []
    assert len(Journal(journal).submissions) == 1, "tried once"


def forgotten(bench: Bench):
    """Another command, hours later, on a Slurm that has forgotten every job and keeps no accounts."""
    again = bench.executor()
    again._client.queue = list
    again._client.shown = lambda array=None: []
    return again


def test_a_whole_array_cancelled_by_hand_and_forgotten_is_asked_about(bench: Bench) -> None:
    ex = bench.executor(array_parallelism=1)
    ex.submit(
        [bench.job("ran", f"echo ran >> ran; {WAIT}"), bench.job("waited", f"echo waited >> ran; {WAIT}")]
    )
    running(ex, "ran")
    until(lambda: bench.text("ran"), "its first line")
    bench.cluster.client("scancel", bench.array(ex))
    until(lambda: bench.show(f"{bench.array(ex)}_0")["JobState"] == "CANCELLED")
    again = forgotten(bench)
    again.follow(["ran", "waited"])
    assert over(again) == {"ran": JobState.FAILED, "waited": JobState.FAILED}
    assert ends(again, "ran") == ends(again, "waited") == [End.UNCLEAR]
    remedy = "It is not submitted again unasked: the same sweep command does that"
    assert again.notes()["ran"].startswith("stopped by SIGTERM, and Slurm has forgotten it")
    assert again.notes()["waited"].startswith("it never started, and Slurm has forgotten it")
    assert all(remedy in note for note in again.notes().values())
    assert len(again.journal.submissions) == 1, "nobody asked for more"
    (bench.folder / "go").touch()
    asked = bench.executor()
    asked.submit([bench.job("waited", "echo waited >> ran")])
    assert over(asked) == {"waited": JobState.ENDED}
    assert bench.text("ran").split() == ["ran", "waited"]
