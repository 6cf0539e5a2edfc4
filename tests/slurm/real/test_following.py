"""Who follows a sweep reads how many packs wait, what for, and when Slurm expects to start the first."""

from __future__ import annotations

import io
import re
import time

import pytest
from bench import WAIT, Bench, over
from rich.console import Console
from waiting import until

from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.measured import NotebookWatch
from perfsweep.slurm.client import expected_start
from perfsweep.slurm.jobs import JobState

COUNTS = "12 pending (Priority; first expected about 14:05), 3 running"
NOON = time.strptime("2026-11-23T12:00:00", "%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ([], ""),
        (["", ""], ""),
        (["2026-11-23T14:05:00", "", "2026-11-23T13:00:00"], "first expected about 13:00"),
        (["2026-11-23T14:03:10"], "first expected about 14:05"),
        (["2026-11-24T09:00:00"], "first expected about 2026-11-24 09:00"),
        (["2026-11-23T11:59:00"], ""),
    ],
)
def test_the_first_start_that_slurm_expects_is_said_to_five_minutes(starts: list[str], words: str) -> None:
    assert expected_start(starts, NOON) == words


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_a_terminal_and_a_log_get_the_counts_as_a_line(terminal: bool) -> None:
    shown = io.StringIO()
    Display(Console(file=shown, force_terminal=terminal, width=100)).counts(COUNTS)
    assert re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue()) == f"{COUNTS}\n"


def test_a_notebook_gets_the_counts_as_one_plain_line_that_changes() -> None:
    calls: list[tuple[dict[str, str], bool]] = []
    watch = NotebookWatch(lambda content, raw, display_id, update: calls.append((content, update)))
    for text in (COUNTS, "15 running"):
        watch.counts(text)
    assert calls == [({"text/plain": COUNTS}, False), ({"text/plain": "15 running"}, True)]


@pytest.mark.slow
def test_a_job_behind_another_is_said_to_wait_with_the_start_that_slurm_plans(bench: Bench) -> None:
    ex = bench.executor(exclusive=True, sbatch=["--nodelist=n1"], time_min=30)
    ex.submit([bench.job(name, WAIT) for name in ("one", "two")])
    plan = r"first expected about ([\d-]+ )?\d\d:\d\d"
    said = re.compile(rf"1 pending \((Resources|Priority); {plan}\), 1 running")
    until(lambda: ex.poll() and said.fullmatch(ex.counts()), f"Slurm's plan: {ex.counts()}")
    before = ex._client.calls
    ex._next_poll = 0.0
    ex.poll()
    assert ex._client.calls - before == 1, "one question however much is said"
    (bench.folder / "go").touch()
    assert over(ex) == {"one": JobState.ENDED, "two": JobState.ENDED}
