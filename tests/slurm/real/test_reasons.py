"""What a user reads when a sweep on a real Slurm did not go well: no status 0, and always a reason."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from bench import Bench
from waiting import until

from perfsweep.slurm.journal import Journal

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


def test_leaving_while_packs_were_not_submitted_yet_says_how_many(bench: Bench) -> None:
    options = ("axes.slab=[2,3,4,5]", "cluster.arms_per_pack=2", "cluster.max_submit=1")
    first = bench.start(*bench.sweep(*SLOW_TOY, *options))
    until(lambda: bench.text("runs/toy/packs/p000/log.txt"), "the start of the first job")
    first.send_signal(signal.SIGINT)
    output, _ = first.communicate(timeout=120)
    packs = bench.text("runs/toy/manifest.jsonl").count('"row": "pack"')
    journal = Journal(toy(bench) / "submissions.jsonl")
    left = packs - len({name for one in journal.submissions.values() for name in one.names})
    assert left > 0
    assert f"submitted jobs go on, but {left} packs were not submitted yet" in words(output)
    assert bench.perfsweep("cancel", "runs/toy").returncode == 0
