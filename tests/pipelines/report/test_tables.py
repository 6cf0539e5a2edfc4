"""The tables of a comparison: which there are, in which order, and what stands in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.arm_records import CounterChange
from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, Quality
from perfsweep.pipelines.analysis.columns import Style, Where
from perfsweep.pipelines.analysis.combinations import AloneAndBeside, Corners
from perfsweep.pipelines.analysis.compare import Comparison, Elsewhere, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.tables import (
    Table,
    answer_tables,
    arms_table,
    changes_table,
    claim_columns,
    design_title,
    effects_by_design,
    has_several_designs,
    oracle_columns,
    table_of,
)
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
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
NOT_KNOWN = "helps with the others; alone it is not known"
STEPS = (effect("s", 0.9, "chain"), effect("t", 0.8, "chain"))
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
    assert "Two toggles at a time" not in [one.title for one in answer_tables(whole, Where.TERMINAL)]


def test_nothing_to_show_is_no_table() -> None:
    assert list(answer_tables(comparison(), Where.TERMINAL)) == []


def test_two_toggles_at_a_time_have_what_both_take_and_what_was_to_be_expected() -> None:
    (table,) = answer_tables(comparison(corners=(CORNERS,)), Where.MARKDOWN)
    assert dict(zip(headings(table), *rows(table), strict=True)) == {
        "toggles": "a=on x b=on",
        "the first alone": "2.00x faster",
        "the second alone": "1.10x slower",
        "both": "1.67x faster",
        "expected of both": "1.82x faster",
    }


@pytest.mark.parametrize(
    ("alone", "cells"),
    [
        (FAST, ["amp=d", "1.11x faster", "faster", "1.43x faster", "faster", "helps either way"]),
        (None, ["amp=d", "", "not measured alone", "1.43x faster", "faster", NOT_KNOWN]),
    ],
)  # fmt: skip
def test_a_level_alone_and_beside_the_others(alone: EffectResult | None, cells: list[str]) -> None:
    (table,) = answer_tables(comparison(alone_and_beside=(AloneAndBeside(alone, ELSEWHERE),)), Where.HTML)
    assert [one.key for one in table.columns if one.number] == ["alone", "beside"]
    assert rows(table) == [cells]


def test_oracle_checks_stand_under_their_bounds_and_what_fails_stands_out() -> None:
    other = Quality("a=1,b=2", (OracleDeviation("gap", 0.5, 0.01), OracleDeviation("new", 1.0, 1.0)))
    table = Table("", oracle_columns((QUALITY, other)), (QUALITY, other))
    assert headings(table) == ["arm", "excess loss <=\u00a00.01", "gap <=\u00a00.01", "new <=\u00a01"]
    assert rows(table) == [["naive", "0.5", "0.001", ""], ["a=1, b=2", "", "0.5", "1"]]
    styles = [[column.style(row) for column in table.columns[1:]] for row in table.rows]
    assert styles == [[Style.ALARM, Style.PLAIN, Style.PLAIN], [Style.PLAIN, Style.ALARM, Style.PLAIN]]


def test_claims_say_the_design_where_there_are_several() -> None:
    one, several = comparison(FAST), comparison(FAST, ELSEWHERE)
    assert [column.cell(RULED) for column in claim_columns(one)] == [
        "amp=b",
        "twice as fast",
        "A report, 2.1",
        RULED.text,
    ]
    assert claim_columns(several)[0].cell(RULED) == "amp=b (one at a time)"


def test_placebos_are_no_design_of_their_own() -> None:
    assert not has_several_designs(comparison(FAST, effect("p", 1.0, "placebo")))
    assert has_several_designs(comparison(FAST, ELSEWHERE))
    assert not has_several_designs(comparison())


SAME = ParityResult(ParityVerdict.IDENTICAL, Parity.EXACT)
GROUPED = (
    effect("off", 1.2, verdict=Verdict.SLOWER),
    LOST,
    effect("on", 0.8, parity=SAME),
    FAST,
    FASTER,
    effect("best", 0.7, parity=SAME),
)


@pytest.mark.parametrize("where", [Where.TERMINAL, Where.HTML, Where.MARKDOWN])
def test_effects_stand_below_what_to_do_about_them_and_those_without_a_time_come_last(where: Where) -> None:
    (table,) = answer_tables(comparison(*GROUPED), where)
    assert table.of_effects
    assert [(heading, [row.effect.level for row in own]) for heading, own in table.grouped()] == [
        ("TURN ON", ["best", "on"]),
        ("RESULTS NOT CHECKED", ["a", "b"]),
        ("LEAVE OFF", ["off"]),
        ("NO TIME", ["c"]),
    ]
    assert ("verdict" in headings(table)) is (where is not Where.TERMINAL), "the heading says it there"


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


def test_designs_keep_their_order_and_read_as_words() -> None:
    found = effects_by_design([ELSEWHERE, FAST, effect("e", 0.1, "leave_one_out"), *STEPS])
    assert [(title, [one.ratio for one in group]) for title, group in found] == [
        ("leave one out", [0.1, 0.7]),
        ("one at a time", [0.9]),
        ("chain", [0.9, 0.8]),
    ]
    assert design_title("one_at_a_time") == "one at a time"


def test_the_table_of_arms_names_the_unit() -> None:
    arm = ArmResult("amp=b", 6, 1500.0, None, {"ok": 6})
    table = arms_table(comparison(arms=(arm,)), Where.HTML)
    assert "time per pair" in headings(table)
    assert table.title == "Arms" and rows(table)[0][:2] == ["amp=b", "1.5 us"]


def test_counters_that_differ_name_their_arm_once() -> None:
    changes = (CounterChange("products", 4000.0, 12345.0), CounterChange("flips", 0.0, 0.25))
    arms = (
        ArmResult("a=1", 6, 1.0, None, {}, changes=changes, name="tuned"),
        ArmResult("b=1", 6, 1.0, None, {}, changes=changes[:1]),
        ArmResult("c=1", 6, 1.0, None, {}),
    )
    table = changes_table(comparison(arms=arms))
    assert headings(table) == ["arm", "counter", "baseline", "arm"]
    assert rows(table) == [
        ["tuned", "products", "4,000", "12,345"],
        ["", "flips", "0", "0.25"],
        ["b=1", "products", "4,000", "12,345"],
    ]


def test_cells_that_are_text_already_are_tabulated_with_numbers_on_the_right() -> None:
    table = table_of("files", ("name", "size"), iter([("a", "1"), ("b", "2")]), numbers=("size",))
    assert (table.title, headings(table), rows(table)) == (
        "files",
        ["name", "size"],
        [["a", "1"], ["b", "2"]],
    )
    assert [column.number for column in table.columns] == [False, True]
    assert not any(column.short for column in table.columns), "their words break in the page"
