"""Tables of the terminal: which columns fit, and that words and quantities stay whole."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.columns import Column, Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.failed_trials import FailedTrials
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report import sweep_status
from perfsweep.pipelines.report.sweep_status import PackStatus, SweepStatus
from perfsweep.pipelines.report.tables import Table, effects_table, table_of
from perfsweep.pipelines.report.terminal_table import fitting_columns, print_table, show
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect, Outcome
from perfsweep.workloads.api import Parity

ROWS = ("first", "second")
NAME: Column[str] = Column("name", "name", text=lambda row: f"the {row} of two names", width=12)
COLUMNS = (
    NAME,
    Column("time", "time", text=lambda row: "-12.5 %", kind=float),
    Column("memory", "memory", text=lambda row: "+100.1 MB", kind=float, drop=2),
    Column("compile", "compile", text=lambda row: "12.5 s", kind=float, drop=1),
)
WIDE: Column[str] = Column("wide", "wide", text=lambda row: "1234567890", kind=float)


def printed(room: int, columns: tuple[Column[str], ...] = COLUMNS) -> str:
    console = Console(file=io.StringIO(), width=room)
    print_table(console, Table("a table", columns, ROWS))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("room", "keys"),
    [
        (80, ["name", "time", "memory", "compile"]),
        (40, ["name", "time", "memory"]),
        (30, ["name", "time"]),
        (10, ["name", "time"]),
    ],
)
def test_columns_leave_a_narrow_terminal_in_the_order_they_declare(room: int, keys: list[str]) -> None:
    assert [column.key for column in fitting_columns(COLUMNS, ROWS, room)] == keys


def test_a_heading_above_narrow_quantities_folds_between_its_words_and_in_none() -> None:
    long: Column[str] = Column("long", "reproducibility by far", text=lambda row: "1 %", kind=float)
    lines = [line.split() for line in printed(80, (NAME, long)).splitlines()]
    assert ["name", "reproducibility"] in lines or ["reproducibility"] in lines
    assert not any("reproducib" in line for line in lines)


def test_what_is_left_out_is_named() -> None:
    assert "(too narrow for: memory, compile)" in printed(40, (*COLUMNS, WIDE))
    assert "too narrow" not in printed(80)


@pytest.mark.parametrize("room", [24, 30, 40, 80])
def test_no_line_is_wider_than_the_terminal_and_no_quantity_is_broken(room: int) -> None:
    text = printed(room)
    assert max(map(len, text.splitlines())) <= room
    assert "-12.5 %" in text


def test_words_take_the_room_that_is_left_and_fold_between_words_where_there_is_none() -> None:
    assert "the first of two names" in printed(80)
    assert "the first of" in printed(30) and "the first of two names" not in printed(30)


def test_headings_of_quantities_fold_to_the_quantities() -> None:
    check: Column[str] = Column("excess", "mean excess <=\u00a01e-05", text=lambda row: "2e-05", kind=float)
    text = printed(80, (NAME, check))
    assert "excess <=" not in text
    assert "mean" in text and "<=\u00a01e-05" in text


def test_what_a_workload_calls_its_levels_is_no_markup() -> None:
    name: Column[str] = Column("name", "name", text=lambda row: f"[red]{row}[/red]")
    assert "[red]first[/red]" in printed(80, (name,))


def test_a_word_wider_than_its_column_asks_for_stays_whole() -> None:
    verdict: Column[str] = Column("verdict", "verdict", text=lambda row: "unsupported here", width=10)
    assert "unsupported" in printed(50, (*COLUMNS, verdict))


@pytest.mark.parametrize("room", [44, 60, 80])
def test_a_table_of_text_breaks_words_and_no_quantity(room: int) -> None:
    headings = ("judged by", "95 % interval", "resolved")
    rows = [("wall time", "+9.12 % .. +10.31 %", "no, interval misses it")]
    console = Console(file=io.StringIO(), width=room)
    print_table(console, table_of("self-test", headings, rows, numbers=headings[1:2]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= room
    assert "+9.12 % .. +10.31 %" in text
    assert {"wall", "time", "no,", "interval", "misses", "it"} <= set(text.split())


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_status_cuts_nothing_off_why_a_job_waits(width: int) -> None:
    reason = "QOSMaxJobsPerUserLimit: waits until others of yours have ended"
    pack = PackStatus(
        pack="p000", arms=12, rounds=3, rounds_planned=10, trials=99, not_ok=1, job="pending", note=reason
    )
    console = Console(file=io.StringIO(), width=width)
    sweep_status.show(
        console, SweepStatus(sweep="demo", workload="digits", folder="x", exit=1, packs=(pack,), skipped=())
    )
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert not Counter("".join(reason.split())) - Counter(text)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_a_failure_says_what_raised_and_where_its_log_lies_in_one_piece() -> None:
    log = Path("/a/rather/long/folder", "x" * 60, "log.txt")
    raised = FailedTrials("amp=bf16", "2 timing", Outcome.FAILED, "ValueError", "train.py:7", log, False)
    silent = replace(raised, arm="gc=frozen", where="", log=log.with_name("other.txt"))
    found = Comparison("demo", "pair", 0.01, None, (), (), (), failures=(raised, silent))
    console = Console(file=io.StringIO(), width=40)
    show(console, found)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"\namp=bf16: train.py:7\n  log: {log}\ngc=frozen\n  log: {silent.log}\n" in text


LONG = EffectResult(
    Effect(
        id="e",
        design="one_at_a_time",
        toggle="precision_schedule",
        level="warm_bf16_then_fp32",
        pairs=(("a", "b"),),
        also=("active_set", "csc_layout"),
    ),
    "arm",
    "base",
    Verdict.UNDECIDED,
    ratio=0.0012,
    low=0.00101,
    high=0.00144,
    rounds_needed=38,
    parity=ParityResult(ParityVerdict.WITHIN_TOLERANCE, Parity.TOLERANCE),
    memory_bytes=-(2.0**34),
    compile_s=1234.5,
    warm_compile_s=12.5,
    trials={"ok": 12, "failed": 3},
)
UNSUPPORTED = replace(LONG, verdict=None, ratio=None, low=None, high=None, outcome="unsupported")


def effects_at(width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    rows = (LONG, UNSUPPORTED)
    print_table(console, effects_table("effects", rows, (), Where.TERMINAL))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_time_interval_verdict_and_results_stay_whole_at_eighty_columns(width: int) -> None:
    text = effects_at(width)
    assert max(map(len, text.splitlines())) <= width
    for whole in ("833x faster", "694 .. 990", "NOT DECIDED", "CANNOT ACT HERE", "unsupported", "tolerance"):
        assert whole in text
    for cost in ("-17180 MB", "1234.5 s"):
        assert cost in text, "costs are never left out, nor is a unit parted from its figure"


@pytest.mark.parametrize("width", [80, 100])
def test_what_to_do_stays_on_one_line_however_short_the_names_below_it_are(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    short = replace(LONG, effect=LONG.effect.model_copy(update={"toggle": "a", "level": "1", "also": ()}))
    rows = [replace(short, verdict=one, parity=None) for one in (Verdict.FASTER, Verdict.NO_DIFFERENCE)]
    print_table(console, effects_table("effects", rows, (), Where.TERMINAL))
    lines = [line.strip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert "RESULTS NOT CHECKED" in lines and "MAKES NO DIFFERENCE" in lines


@pytest.mark.parametrize("width", [30, 40, 50, 60, 70])
def test_however_narrow_it_is_no_character_is_cut_off(width: int) -> None:
    kept = (column for column in EFFECTS if column.key in ("name", "speed", "interval", "parity", "cost"))
    cells = "".join(column.cell(row) for column in kept for row in (LONG, UNSUPPORTED))
    assert not Counter("".join(cells.split())) - Counter(effects_at(width))
