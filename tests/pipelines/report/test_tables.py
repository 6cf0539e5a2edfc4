"""The tables of a comparison: which there are, what they hold, and how they fit a terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from measured import with_everything
from rich.console import Console

from perfsweep.pipelines.analysis.arm_records import CounterChange
from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, Quality
from perfsweep.pipelines.analysis.columns import Column, Style, Where
from perfsweep.pipelines.analysis.combinations import AloneAndBeside, Corners
from perfsweep.pipelines.analysis.compare import Comparison, Elsewhere, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.analysis.failed_trials import FailedTrials
from perfsweep.pipelines.measured import Sweep
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.tables import (
    Table,
    answer_tables,
    arms_table,
    changes_table,
    effects_by_design,
    effects_table,
    oracle_columns,
)
from perfsweep.pipelines.report.terminal_table import print_table, show
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect, Outcome
from perfsweep.workloads.api import Claim, Parity


def effect(level: str, ratio: float | None, design: str = "one_at_a_time", **fields: object) -> EffectResult:
    made = Effect(id=level, design=design, toggle="amp", level=level, pairs=(("a", "b"),))
    verdict = fields.pop("verdict", Verdict.FASTER if ratio else None)
    return EffectResult(made, level, "baseline", verdict, ratio, **fields)  # type: ignore[arg-type]


def comparison(*effects: EffectResult, **fields: object) -> Comparison:
    return replace(
        Comparison("demo", "pair", 0.01, Reference("naive", 1.0, 6), effects, (), ()),
        **fields,  # type: ignore[arg-type]
    )


def rows(table: Table) -> list[list[str]]:
    return [[column.cell(row) for column in table.columns] for row in table.rows]


def headings(table: Table) -> list[str]:
    return [column.heading for column in table.columns]


POOLED = {"low": 0.8, "high": 0.95, "method": "pooled variance"}
FAST, FASTER, LOST = effect("b", 0.9, **POOLED), effect("a", 0.5), effect("c", None, outcome="oom")
ELSEWHERE = effect("d", 0.7, "leave_one_out")
CLAIM = Claim("twice as fast", "A report", "2.1", ({"amp": "b"},), low=2.0)
RULED = RuledClaim(CLAIM, "amp=b", "one_at_a_time", Ruling.REFUTED, "", "speed", 0.9, 0.8, 0.95)
QUALITY = Quality("naive", (OracleDeviation("excess_loss", 0.5, 0.01), OracleDeviation("gap", 0.001, 0.01)))
CORNERS = Corners(("a", "b"), ("off", "off"), ("on", "on"), 0.5, 1.1, 0.6)


def test_effects_come_by_design_with_the_fastest_first_and_then_what_stands_beside_them() -> None:
    whole = comparison(
        effect("z", 0.99, "leave_one_out"),
        LOST,
        FAST,
        FASTER,
        corners=(CORNERS,),
        alone_and_beside=(AloneAndBeside(FAST, ELSEWHERE),),
        quality=(QUALITY,),
        rulings=(RULED,),
        elsewhere=(Elsewhere("another GPU", (ELSEWHERE,)),),
    )
    tables = list(answer_tables(whole, Where.MARKDOWN))
    assert [one.title for one in tables] == [
        "Effects: leave one out",
        "Effects: one at a time",
        "On another GPU: leave one out",
        "Two toggles at a time",
        "Alone and with the others",
        "Against the oracle",
        "Claims",
    ]
    assert [row[0] for row in rows(tables[1])] == ["amp=a", "amp=b", "amp=c"]
    assert tables[1].caption == "Intervals: pooled variance."
    assert tables[0].caption == ""
    assert tables[4].caption.startswith("Alone: one toggle at a time on the baseline.")
    ruled = ["twice as fast", "A report, 2.1", "refuted (1.11x faster [1.05 .. 1.25])"]
    assert rows(tables[6]) == [["amp=b (one at a time)", *ruled]]
    assert rows(list(answer_tables(comparison(FAST, rulings=(RULED,)), Where.MARKDOWN))[1]) == [
        ["amp=b", *ruled]
    ]
    assert "Two toggles at a time" not in [one.title for one in answer_tables(whole, Where.TERMINAL)]


def test_a_sweep_with_every_kind_of_table_is_reported_as_it_was(tmp_path: Path) -> None:
    """Times are simulated; `everything.md` was read line by line."""
    sweep = Sweep(*with_everything(tmp_path))
    sweep.report()
    expected = Path(__file__).with_name("everything.md").read_text()
    written = sweep.folder.markdown_file.read_text().replace(str(tmp_path), "runs")
    assert re.sub(r"/[0-9a-f]{16}/", "/ARM/", written) == expected


def test_only_listed_arms_are_told_apart_by_their_baseline_and_one_that_cannot_act_has_no_table() -> None:
    def listed(level: str, reference: str, design: str = "arms", **own: object) -> EffectResult:
        made = effect(level, None, design, **own)
        return replace(made, effect=made.effect.model_copy(update={"reference": reference}))

    def told(*effects: EffectResult) -> list[tuple[str, list[str]]]:
        return [(title, [one.effect.level for one in own]) for title, own in effects_by_design(effects)]

    a, b, lost = listed("1", "a"), listed("2", "b"), listed("3", "b", outcome="base unsupported")
    other = listed("4", "b", "chain", outcome="base unsupported")
    assert told(a, listed("5", "")) == [("arms", ["1"]), ("arms", ["5"])]
    assert told(a, lost, other) == [("arms", ["1"]), ("chain", ["4"])]
    assert told(a, b, listed("6", "b", outcome="base failed"), other) == [
        *(("arms against a", ["1"]), ("arms against b", ["2", "6"]), ("chain", ["4"]))
    ]


def test_two_toggles_at_a_time_have_what_both_take_and_what_was_to_be_expected() -> None:
    (table,) = answer_tables(comparison(corners=(CORNERS,)), Where.MARKDOWN)
    assert dict(zip(headings(table), *rows(table), strict=True)) == {
        "toggles": "a=on x b=on",
        "the first alone": "2.00x faster",
        "the second alone": "1.10x slower",
        "both": "1.67x faster",
        "expected of both": "1.82x faster",
    }


def test_oracle_checks_stand_under_their_bounds_and_what_fails_stands_out() -> None:
    other = Quality("a=1,b=2", (OracleDeviation("gap", 0.5, 0.01), OracleDeviation("new", 1.0, 1.0)))
    table = Table("", oracle_columns((QUALITY, other)), (QUALITY, other))
    assert headings(table) == ["arm", "excess loss <=\u00a00.01", "gap <=\u00a00.01", "new <=\u00a01"]
    assert rows(table) == [["naive", "0.5", "0.001", ""], ["a=1, b=2", "", "0.5", "1"]]
    styles = [[column.style(row) for column in table.columns[1:]] for row in table.rows]
    assert styles == [[Style.ALARM, Style.PLAIN, Style.PLAIN], [Style.PLAIN, Style.ALARM, Style.PLAIN]]


@pytest.mark.parametrize("design", ["chain", "ladder", "placebo"])
def test_steps_and_sizes_keep_the_order_of_the_plan_and_say_their_verdicts(design: str) -> None:
    planned = (effect("1", 1.2, design, verdict=Verdict.SLOWER), effect("2", 0.5, design))
    (table,) = answer_tables(comparison(*planned), Where.TERMINAL)
    assert [(heading, own) for heading, own in table.grouped()] == [("", list(planned))]
    assert "verdict" in headings(table)


def test_a_terminal_has_the_oracle_where_an_arm_misses_it_and_pages_have_it_always() -> None:
    kept = replace(QUALITY, deviations=QUALITY.deviations[1:])
    for quality, where, shown in (
        (QUALITY, Where.TERMINAL, True),
        (kept, Where.TERMINAL, False),
        (kept, Where.HTML, True),
        (kept, Where.MARKDOWN, True),
    ):
        titles = [one.title for one in answer_tables(comparison(quality=(quality,)), where)]
        assert (titles == ["Against the oracle"]) is shown, where


def test_counters_that_differ_name_their_arm_once() -> None:
    changes = (CounterChange("products", 4000.0, 12345.0), CounterChange("flips", 0.0, 0.25))
    arms = (
        ArmResult("a=1", 6, 1.0, None, {}, changes=changes, name="tuned"),
        ArmResult("b=1", 6, 1.0, None, {}, changes=changes[:1]),
        ArmResult("c=1", 6, 1.0, None, {}),
    )
    own = headings(arms_table(comparison(arms=arms[:1]), Where.TERMINAL))
    assert own == ["arm", "time per pair", "median iteration", "peak memory"]
    table = changes_table(comparison(arms=arms))
    assert headings(table) == ["arm", "counter", "baseline", "arm"]
    assert rows(table) == [
        ["tuned", "products", "4,000", "12,345"],
        ["", "flips", "0", "0.25"],
        ["b=1", "products", "4,000", "12,345"],
    ]


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


PRINTED = {
    72: """
Some

 name                      why it is so              short        time
 ─────────────────────────────────────────────────────────────────────
 compile=default with      because of this and that  yes        1.5 ms
 some more words
 b                         no                        a rather    10 ms
                                                     long one

(too narrow for: drop it)
""",
    44: """
Some

              why it is
 name         so           short       time
 ──────────────────────────────────────────
 compile=def  because of   yes       1.5 ms
 ault with    this and
 some more    that
 words
 b            no           a rather   10 ms
                           long one

(too narrow for: drop it)
""",
}


@pytest.mark.parametrize("width", PRINTED)
def test_words_break_before_numbers_do_and_the_shortest_lack_of_room_is_filled_first(width: int) -> None:
    columns = (
        Column("a", "name", text=lambda row: row[0], width=24),
        Column("b", "why it is so", text=lambda row: row[1], width=40),
        Column("c", "short", text=lambda row: row[2], width=8),
        Column("d", "time", text=lambda row: row[3], kind=float),
        Column("e", "drop it", text=lambda row: "1", kind=int, drop=1),
    )
    rows = (
        ("compile=default with some more words", "because of this and that", "yes", "1.5 ms"),
        ("b", "no", "a rather long one", "10 ms"),
    )
    console = Console(file=io.StringIO(), width=width)
    print_table(console, Table("Some", columns, rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert [line.rstrip() for line in text.splitlines()] == PRINTED[width].splitlines()


def effects_at(width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    rows = (LONG, UNSUPPORTED)
    print_table(console, effects_table("effects", rows, (), Where.TERMINAL))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_terminal_names_bases_where_one_toggle_is_measured_against_several() -> None:
    other = replace(FAST, base_label="newton")
    for rows, shown in (((FAST, other), True), ((FAST, FASTER), False)):
        table = effects_table("effects", rows, (), Where.TERMINAL)
        assert ("base" in headings(table)) is shown, rows


def test_time_interval_verdict_and_results_stay_whole_at_eighty_columns() -> None:
    text = effects_at(80)
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("833x faster", "694 .. 990", "NOT DECIDED", "CANNOT ACT HERE", "unsupported", "tolerance"):
        assert whole in text
    for cost in ("-17180 MB", "1234.5 s"):
        assert cost in text, "costs are never left out, nor is a unit parted from its figure"
