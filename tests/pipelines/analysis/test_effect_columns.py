"""What the table of effects shows of one, and what the file holds of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.columns import Style, Where, row_values, visible_columns
from perfsweep.pipelines.analysis.effect_columns import EFFECTS, effect_name, verdict_style
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict
from perfsweep.pipelines.report.terminal_table import fitting_columns
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.schema import Effect
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import Claim, Parity

EFFECT = Effect(
    id="e1", design="leave_one_out", toggle="amp", level="bf16", pairs=(("a", "b"),), also=("fuse", "loader")
)
CLAIM = Claim("twice as fast", "A report", "2.1", ({"amp": "bf16"},), low=2.0)
WORST = Deviation("loss", 0.02, 0.01, "worst at [3]", False)
FULL = EffectResult(
    EFFECT,
    "amp=bf16",
    "baseline",
    Verdict.SLOWER,
    ratio=1.1,
    low=1.05,
    high=1.15,
    p=0.001,
    rounds=6,
    method="pooled variance",
    code=ReasonCode.RESULTS_DIFFER,
    parity=ParityResult(ParityVerdict.DIFFERENT, Parity.EXACT, WORST),
    memory_bytes=-3.0 * MB,
    compile_s=12.34,
    warm_compile_s=1.26,
    break_even=120.5,
    rounds_needed=40,
    note="a note",
    rulings=(RuledClaim(CLAIM, "amp=bf16", "leave_one_out", Ruling.REFUTED),) * 2,
    trials={"ok": 6, "oom": 2},
    scaling=Scaling(4, 2, Work.WEAK, 0.625, 0.5, 0.75),
)
BARE = EffectResult(EFFECT.model_copy(update={"also": ()}), "amp=bf16", "baseline", None, outcome="oom")


def cells(result: EffectResult, where: Where = Where.HTML) -> dict[str, str]:
    return {one.key: one.cell(result) for one in visible_columns(EFFECTS, [result], where)}


def test_a_person_reads_of_an_effect() -> None:
    assert cells(FULL) == {
        "name": "amp=bf16 (with fuse, loader)",
        "speed": "1.10x slower",
        "interval": "1.05 .. 1.15",
        "verdict": "slower",
        "parity": "different: loss 0.02 > 0.01",
        "efficiency": "62% (4 ranks, weak)",
        "memory_bytes": "-3.0 MB",
        "compile_s": "12.3 s",
        "warm_compile_s": "1.3 s",
        "base": "baseline",
        "rounds": "6",
        "trials": "6 ok\n2 oom",
    }


def test_quantities_stand_on_the_right_and_words_on_the_left() -> None:
    numbers = {one.key for one in visible_columns(EFFECTS, [FULL], Where.HTML) if one.number}
    assert set(cells(FULL)) - numbers == {"name", "verdict", "parity", "base", "trials"}


def test_a_terminal_that_grows_narrower_gives_up_what_matters_least() -> None:
    shown = visible_columns(EFFECTS, [FULL], Where.TERMINAL)
    kept = [{one.key for one in fitting_columns(shown, [FULL], width)} for width in range(200, 0, -1)]
    given_up = ["".join(more - less) for more, less in pairwise(kept) if more != less]
    first_out = ["trials", "efficiency"]
    assert given_up == first_out
    assert kept[0] == set(cells(FULL, Where.TERMINAL))
    assert kept[-1] == {"name", "speed", "interval", "verdict", "parity", "cost"}


def test_of_an_effect_without_a_time_a_person_reads_why() -> None:
    assert cells(BARE) == {
        "name": "amp=bf16",
        "speed": "oom",
        "interval": "",
        "verdict": "",
        "parity": "",
        "memory_bytes": "",
        "base": "baseline",
        "rounds": "",
    }


def test_a_terminal_leaves_the_base_and_the_rounds_to_the_pages_and_has_all_costs_in_one_column() -> None:
    costs = {"memory_bytes", "compile_s", "warm_compile_s"}
    assert set(cells(FULL)) - set(cells(FULL, Where.TERMINAL)) == {"base", "rounds", *costs}
    assert cells(FULL, Where.TERMINAL)["cost"] == "-3.0 MB, 12.3 s to compile"
    assert cells(replace(FULL, compile_s=0.0), Where.TERMINAL)["cost"] == "-3.0 MB"
    assert cells(replace(FULL, memory_bytes=None), Where.TERMINAL)["cost"] == "12.3 s to compile"
    assert cells(BARE, Where.TERMINAL)["cost"] == ""


@pytest.mark.parametrize("verdict", [Verdict.DIFFERENT, Verdict.FEWER_UNITS])
def test_where_the_time_does_not_count_the_word_is_in_the_place_of_the_speed(verdict: Verdict) -> None:
    found = cells(replace(FULL, verdict=verdict, rounds_needed=None))
    assert (found["speed"], found["interval"]) == (verdict.value, "")


def test_where_it_was_measured_on_a_cpu_a_person_reads_whether_it_acts_on_a_gpu() -> None:
    assert cells(replace(FULL, on_gpu="CPU only"))["on_gpu"] == "CPU only"
    assert "on_gpu" not in cells(FULL)


def test_a_file_holds_of_an_effect() -> None:
    assert row_values(EFFECTS, FULL) == {
        "design": "leave_one_out",
        "on_gpu": "",
        "toggle": "amp",
        "level": "bf16",
        "also": "fuse, loader",
        "arm": "amp=bf16",
        "speed": pytest.approx(1 / 1.1),
        "speed_low": pytest.approx(1 / 1.15),
        "speed_high": pytest.approx(1 / 1.05),
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.15,
        "verdict": "slower",
        "todo": "leave off",
        "reason": "results_differ",
        "outcome": "",
        "parity": "different",
        "parity_worst": 0.02,
        "parity_where": "loss worst at [3]",
        "efficiency": 0.625,
        "efficiency_low": 0.5,
        "efficiency_high": 0.75,
        "ranks": 4,
        "base_ranks": 2,
        "scaling": "weak",
        "memory_bytes": -3.0 * MB,
        "compile_s": 12.34,
        "warm_compile_s": 1.26,
        "break_even_iterations": 120.5,
        "base": "baseline",
        "rounds": 6,
        "rounds_needed": 40,
        "method": "pooled variance",
        "p": 0.001,
        "rulings": "2.1: refuted; 2.1: refuted",
        "note": "a note",
        "id": "e1",
    }


def test_of_what_an_effect_lacks_a_file_holds_nothing() -> None:
    held = {key: value for key, value in row_values(EFFECTS, BARE).items() if value not in (None, "")}
    assert held == {
        "design": "leave_one_out",
        "toggle": "amp",
        "level": "bf16",
        "arm": "amp=bf16",
        "todo": "no time",
        "reason": "no_records",
        "outcome": "oom",
        "base": "baseline",
        "rounds": 0,
        "id": "e1",
    }


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({}, "amp=bf16 (with fuse, loader)"),
        ({"also": ()}, "amp=bf16"),
        ({"also": (), "level": ""}, "amp"),
        ({"also": (), "design": "arms", "toggle": "tuned", "level": "vs late"}, "tuned vs late"),
        ({"also": ("fuse",), "design": "factorial"}, "amp=bf16 (with fuse)"),
    ],
)
def test_an_effect_is_called_by_toggle_level_and_what_moved_along(change: dict, name: str) -> None:
    assert effect_name(replace(FULL, effect=EFFECT.model_copy(update=change))) == name


@pytest.mark.parametrize(
    ("verdict", "style"),
    [
        (Verdict.FASTER, Style.GOOD),
        (Verdict.SLOWER, Style.BAD),
        (Verdict.UNDECIDED, Style.OPEN),
        (Verdict.HELD_BACK, Style.OPEN),
        (Verdict.DIFFERENT, Style.ALARM),
        (Verdict.FEWER_UNITS, Style.ALARM),  # what it says of time must not be used either
        (Verdict.NO_DIFFERENCE, Style.SOFT),
        (None, Style.SOFT),
    ],
)
def test_verdicts_that_are_news_stand_out(verdict: Verdict | None, style: Style) -> None:
    result = replace(FULL, verdict=verdict)
    assert verdict_style(result) is style
    (speed,) = (one for one in EFFECTS if one.key == "speed")
    assert speed.style(result) is style, "a terminal has no column of verdicts below headings"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "62% (4 ranks, weak)"),
        ({"scaling": Scaling(4, 2, Work.OTHER, 0.5, None, None)}, "50% (4 ranks)"),
        ({"verdict": Verdict.HELD_BACK}, "62% (4 ranks, weak), too noisy"),
    ],
)
def test_efficiency_says_of_how_many_ranks_and_which_work(change: dict, text: str) -> None:
    assert cells(replace(FULL, **change))["efficiency"] == text


@pytest.mark.parametrize(("seconds", "text"), [(0.009, None), (0.01, "0.0 s"), (0.06, "0.1 s")])
def test_compiling_under_a_hundredth_of_a_second_is_none(seconds: float, text: str | None) -> None:
    assert cells(replace(FULL, compile_s=seconds)).get("compile_s") == text


def test_every_column_of_a_file_says_what_it_holds() -> None:
    assert not [one.key for one in EFFECTS if Where.FILE in one.where and not one.doc]
