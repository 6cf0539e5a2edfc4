"""What a comparison says in words, and how the verdict of a row is derived step by step."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from machines import effects_of, rounds_of
from measured import compared, cost, simulated, with_everything
from rich.console import Console

from perfsweep.pipelines.analysis.arm_results import ArmResult, OracleDeviation, Quality
from perfsweep.pipelines.analysis.combinations import Gain, Part, Together
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult, decide
from perfsweep.pipelines.analysis.iteration_series import PhaseShare
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.explanation import explanation, row_of, show
from perfsweep.pipelines.report.sentences import (
    conclusions,
    footnotes,
    headline,
    open_questions,
    opening,
    recommended,
)
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.api import Parity
from perfsweep.workloads.errors import ConfigError

SAME = ParityResult(ParityVerdict.IDENTICAL, Parity.EXACT)


def effect(name: str, verdict: Verdict | None, ratio: float | None = None, **fields: object) -> EffectResult:
    """The effect of a level, as ``toggle=level``, with the same results unless told otherwise."""
    toggle, level = name.split("=") if "=" in name else (name, "")
    design, base = str(fields.pop("design", "one_at_a_time")), str(fields.pop("base", "baseline"))
    made = Effect(
        id=f"{name} {design} {base}", design=design, toggle=toggle, level=level, pairs=((name, "base"),)
    )
    values = {"parity": SAME, "ratio": ratio, **fields}
    return EffectResult(made, name, base, verdict, **values)  # type: ignore[arg-type]


def comparison(*effects: EffectResult, **fields: object) -> Comparison:
    return replace(
        Comparison("demo", "pair", 0.01, Reference("naive", 1.5e6, 6), effects, (), ()),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": Reference("late", 2e3, 1)}, "1 round; baseline late: 2 us per pair"),
        ({"reference": Reference("a", 2e3, 18, 3)}, "18 rounds in 3 packs; baseline a: 2 us per pair"),
        (
            {"machine": "2 CPU cores, torch 2.13.0"},
            "6 rounds on 2 CPU cores, torch 2.13.0; baseline naive: 1.5 ms per pair",
        ),
        ({"reference": None}, "no baseline has a finished round yet"),
    ],
)
def test_the_headline_has_the_rounds_the_machine_and_what_the_baseline_takes(
    change: dict, words: str
) -> None:
    found = comparison(**change)
    assert headline(found) == words
    assert opening(found) == f"{words[0].upper()}{words[1:]}."


FAST = effect("a=1", Verdict.FASTER, 0.5, low=0.45, high=0.55)
FASTER = effect("b=2", Verdict.FASTER, 0.25, low=0.2, high=0.3)
WHOLE = effect("all steps", Verdict.FASTER, 0.2, design="chain", low=0.16, high=0.25)
STACK = replace(WHOLE, arm_label="a=1,b=2")
WON = {"fastest": FASTER, "winners": (FASTER, FAST), "workload": "digits"}


def said(found: Comparison) -> dict[str, str]:
    """What is concluded, by its label."""
    return dict(conclusions(found))


def together(*steps: EffectResult, whole: EffectResult = STACK) -> Comparison:
    return comparison(FAST, FASTER, **WON, together=Together("runs/demo-together", whole, steps))


def test_winners_that_were_measured_together_are_told_with_their_gain_and_step_by_step() -> None:
    steps = (
        effect("b=2", Verdict.FASTER, 0.25, design="chain"),
        effect("a=1", Verdict.NO_DIFFERENCE, 0.99, design="chain"),
        effect("c=3", Verdict.SLOWER, 1.1, design="chain"),
        effect("d=4", None, outcome="oom", design="chain"),
    )
    found = said(together(*steps))
    assert found["All winners together"] == "5.00x faster [4.00 .. 6.25], results identical"
    assert found["Step by step"] == (
        "b=2 4.00x faster, then a=1 adds nothing that is certain (1.010x faster), then c=3 1.10x slower,"
        " then d=4 is not measured (oom)"
    )


NOTHING = effect("a=1", Verdict.NO_DIFFERENCE, 0.999, low=0.995, high=1.004, design="chain")
WORSE = effect("d=4", Verdict.SLOWER, 1.1, low=1.05, high=1.15, design="chain")
GAIN = effect("b=2", Verdict.FASTER, 0.25, low=0.2, high=0.3, design="chain")
NOT_HERE = effect("e=5", None, outcome="inert", design="chain")
OPEN = effect("c=3", Verdict.UNDECIDED, 0.99, low=0.95, high=1.03, design="chain")
PART = replace(WHOLE, arm_label="b=2,c=3")
USE_B, USE_ALL = (
    f"perfsweep run workload=digits {one}" for one in ("toggles.b=2", "toggles.a=1 toggles.b=2")
)


def stacked(*steps: EffectResult, parts: tuple[EffectResult | None, ...] = (), **own: EffectResult) -> dict:
    found = together(*steps, **own)
    assert found.together is not None
    return said(replace(found, together=replace(found.together, parts=parts)))


def test_last_steps_that_add_nothing_are_left_out_where_the_rest_is_measured() -> None:
    found = stacked(GAIN, NOTHING, NOT_HERE, WORSE, parts=(FASTER, None, None, STACK))
    assert found["Step by step"] == (
        "b=2 4.00x faster, then a=1 adds nothing (1.001x faster), then e=5 adds nothing,"
        " then d=4 1.10x slower"
    )
    assert found["Left out"] == "a=1, e=5, d=4; the rest is 4.00x faster [3.33 .. 5.00], results identical"
    assert found["Use it"] == USE_B and "Kept" not in found


def test_a_step_that_may_still_gain_is_not_left_out_nor_one_before_it() -> None:
    found = stacked(GAIN, OPEN, NOTHING, parts=(FASTER, PART, STACK))
    assert found["Use it"] == "perfsweep run workload=digits toggles.b=2 toggles.c=3"
    between = stacked(GAIN, NOTHING, OPEN, parts=(FASTER, None, STACK))
    assert (between["Use it"], between["Kept"]) == (
        USE_ALL,
        "a=1 adds nothing, but the rest was not measured without it",
    )
    assert "Left out" not in between


def test_winners_that_change_results_together_say_so_once_and_are_not_recommended() -> None:
    found = together(whole=replace(STACK, verdict=Verdict.DIFFERENT))
    assert said(found)["All winners together"] == "different"
    assert recommended(found) == FASTER
    assert said(found)["Use it"] == "perfsweep run workload=digits toggles.b=2"


def test_the_command_to_use_has_every_winner_where_they_were_measured_together_and_else_the_best() -> None:
    assert said(together())["Use it"] == "perfsweep run workload=digits toggles.a=1 toggles.b=2"
    found = comparison(FAST, FASTER, **WON, options={"width": 64, "mode": "two words"})
    assert said(found)["All winners together"].startswith("not measured yet"), "gains are never multiplied up"
    quoted = '"workload.mode=' + "'two words'" + '"'
    assert said(found)["Use it"] == f"perfsweep run workload=digits workload.width=64 {quoted} toggles.b=2"


def test_a_listed_arm_that_is_clearly_faster_than_all_winners_is_the_one_to_use() -> None:
    listed = effect("exact vs naive", Verdict.FASTER, 0.1, low=0.09, high=0.11, design="arms")
    listed = replace(listed, arm_label="a=1,b=2,c=4")
    command = "perfsweep run workload=digits toggles.a=1 toggles.b=2 toggles.c=4"
    for found in (together(), comparison(listed, workload="digits"), comparison(FASTER, listed, **WON)):
        assert said(replace(found, fastest=listed))["Use it"] == command
    near = replace(listed, ratio=0.18, low=0.15, high=0.2)
    alone = replace(FASTER, ratio=0.1, low=0.09, high=0.11)
    for other in (
        replace(together(), fastest=near),
        replace(together(), fastest=alone, winners=(alone, FAST)),
    ):
        assert said(other)["Use it"] == USE_ALL, "it comes of another sweep, which does not tell them apart"


def arm(name: str, ns: float, **phases: float) -> ArmResult:
    shares = tuple(PhaseShare(phase, "host", time) for phase, time in phases.items())
    return ArmResult(name, 6, ns, None, {}, phases=shares, id=name, name="" if "=" in name else name)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"forward": 40.0}, "naive spends 50 ns of 100 ns in gc, b=2 none"),
        ({"gc": 10.0, "forward": 40.0}, "naive spends 50 ns of 100 ns in gc, b=2 10 ns"),
        ({"gc": 45.0, "forward": 35.0}, None),
    ],
)
def test_the_reason_is_the_phase_that_the_fastest_arm_saves_most_of(own: dict, why: str | None) -> None:
    base = replace(arm("base", 100.0, gc=50.0, forward=40.0), name="naive")
    found = comparison(FASTER, arms=(base, arm("b=2", 50.0, **own)), **WON)
    assert said(found).get("Why") == why


def test_the_reason_names_a_listed_arm_as_the_plan_does() -> None:
    base = replace(arm("base", 100.0, gc=50.0), name="naive")
    listed = effect("exact vs naive", Verdict.FASTER, 0.5, design="arms")
    own = replace(arm(listed.effect.pairs[0][0], 50.0), name="exact")
    found = comparison(listed, arms=(base, own), fastest=listed, workload="digits")
    assert said(found)["Why"] == "naive spends 50 ns of 100 ns in gc, exact none"


MISS = "miss its limits; the table below says by how much"
BASE_MISSES = "! naive, the baseline, misses its limits"


def quality(name: str, holds: bool) -> Quality:
    return Quality(
        name, (OracleDeviation("gap", 0.001, 0.01), OracleDeviation("loss", 0.5, 1.0 if holds else 0.1))
    )


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ({"naive": True, "a=1": True, "b=2": True}, "all 3 arms are within its limits"),
        ({"naive": True, "a=1": False, "b=2": False}, f"! a=1, b=2 {MISS}"),
        ({"naive": False, "a=1": True}, f"{BASE_MISSES}; a=1 meets them"),
        (
            {"naive": True, **{f"a={n}": False for n in range(7)}},
            f"! a=0, a=1, a=2, a=3, a=4 and 2 more {MISS}",
        ),
    ],
)
def test_the_oracle_is_one_sentence_and_what_misses_it_has_a_sign(arms: dict[str, bool], words: str) -> None:
    rows = tuple(quality(name, holds) for name, holds in arms.items())
    assert said(comparison(quality=rows)) == {"Oracle": words}


def undecided(name: str = "a=1", ratio: float = 0.98, **fields: object) -> EffectResult:
    bounds = {"low": 0.95, "high": 1.01, "code": ReasonCode.HOLDS_ZERO, **fields}
    return effect(name, Verdict.UNDECIDED, ratio, **bounds)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (undecided(rounds_needed=40), "no effect above 5.3% is left to find; about 40 rounds would decide"),
        (undecided(low=0.8, high=1.5), "anything from 1.25x faster to 1.50x slower is possible"),
        (
            undecided(code=ReasonCode.REACHES_INTO_MARGIN, high=0.999),
            "there is an effect, and it may be smaller than 1 %",
        ),
        (
            undecided(code=ReasonCode.BELOW_PLACEBO_FLOOR, high=0.97),
            "the effect is no larger than what copies of the baseline show",
        ),
        (undecided(code=ReasonCode.HOLM_NOT_REJECTED, high=0.999), "not certain as one of 2 comparisons"),
        (undecided(low=None, high=None), "too few rounds"),
        (undecided(low=None, high=None, note="a=1: all {rounds} alike"), "all {rounds} alike"),
        (effect("a=1", Verdict.HELD_BACK, 0.9, note="a=1: the machine throttled"), "the machine throttled"),
    ],
)
def test_an_effect_without_an_answer_says_why_and_what_it_would_take(result: EffectResult, why: str) -> None:
    found = comparison(result, effect("z=1", Verdict.SLOWER, 1.1, note="warm"))
    assert open_questions(found) == [f"a=1: {why}"]
    assert footnotes(found) == ["z=1: warm"], "each is said once"


def test_where_there_are_several_designs_each_name_says_which_is_meant() -> None:
    placebo = undecided("copy", design="placebo")
    found = comparison(undecided(), undecided(high=1.03, design="leave_one_out"), placebo)
    (line,) = open_questions(found)
    assert line.startswith("a=1 (one at a time), a=1 (leave one out), copy (placebo): no effect above")


@pytest.mark.parametrize(
    ("iterations", "lines"),
    [(1200.2, ["a=1: its one-off cost is repaid after 1,201 iterations"]), (1.0, []), (None, [])],
)
def test_a_one_off_cost_that_takes_iterations_to_repay_is_told(
    iterations: float | None, lines: list[str]
) -> None:
    assert footnotes(comparison(effect("a=1", Verdict.FASTER, 0.9, break_even=iterations))) == lines


def test_arms_whose_trials_were_lost_are_told_between_what_is_missing_and_what_else_is_known() -> None:
    arms = (
        ArmResult("fine", 6, 1.0, None, {"ok": 6}),
        ArmResult("not for this machine", 0, None, None, {"unsupported": 1}),
        ArmResult("big", 4, 1.0, None, {"ok": 4, "oom": 2}),
    )
    found = comparison(arms=arms, missing=("rounds are missing",), notes=("a note",))
    assert footnotes(found) == ["rounds are missing", "big: 4 ok, 2 oom trials", "a note"]


def step(outcome: str, **fields: object) -> Part:
    """The step from naive to wide, without a time."""
    made = effect("wide vs naive", None, design="arms", outcome=outcome, **fields)
    return Part("processor", "naive", "wide", made, ())


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (step("unsupported"), "no part of these gains, which are all method: wide cannot act here"),
        (step("oom", note="it needs 3 GB"), "not told apart from the method: it needs 3 GB"),
    ],
)
def test_gains_that_are_not_told_apart_have_a_sentence_that_says_why(part: Part, words: str) -> None:
    assert said(comparison(parts=(part,)))["Processor"] == words
    gain = Gain("fast", FAST, FASTER)
    assert "Processor" not in said(comparison(parts=(replace(part, gains=(gain,)),)))


def test_times_are_given_without_the_phases_that_some_leave_out() -> None:
    loss, solve = PhaseShare("loss", "host", 400.0), PhaseShare("solve", "host", 600.0)
    naive = ArmResult("baseline", 6, 1e4, None, {}, name="naive", phases=(loss,), extra_phases=("loss",))
    fast = replace(naive, name="fast", ns_per_unit=1000.0, phases=(loss, solve))
    found = comparison(arms=(naive, fast, replace(fast, name="failed", ns_per_unit=None)))
    assert said(found)["Without loss"] == "naive 9.6 us per pair, fast 600 ns (16.0x faster)"
    plain = comparison(arms=(replace(naive, extra_phases=()), replace(fast, extra_phases=())))
    assert not any(label.startswith("Without") for label in said(plain))


Measured = Callable[..., Comparison]


@pytest.fixture
def measured(command) -> Measured:
    def run() -> Comparison:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [2]})
        return compared(*simulated(command(design, measure={"rounds": 6}), cost))

    return run


def test_a_row_is_named_by_its_number_in_the_tables_or_by_its_name(measured: Measured) -> None:
    comparison = measured()
    fastest = row_of(comparison, "1")
    assert fastest is row_of(comparison, "work=single")
    assert row_of(comparison, "2") is row_of(comparison, "slab=2 (one at a time)")
    with pytest.raises(
        ConfigError, match=r"no row typo; choose from: 1 work=single \(one at a time\), 2 slab"
    ):
        row_of(comparison, "typo")


def test_a_name_of_several_designs_is_refused_and_a_row_without_a_time_says_why(tmp_path) -> None:
    comparison = compared(*with_everything(tmp_path, iterations=0))
    with pytest.raises(ConfigError, match="several rows are called work=single"):
        row_of(comparison, "work=single")
    assert row_of(comparison, "work=single (factorial)").effect.design == "factorial"
    text = "\n".join(explanation(comparison, row_of(comparison, "slab=64")))
    assert "slab=64 (ladder): oom [no_time]" in text and "CUDA out of memory" in text and "Holm" not in text
    console = Console(file=StringIO(), width=1000)
    show(console, comparison, "slab=64")
    assert console.file.getvalue() == "\n" + text.replace("\n", "\n- ") + "\n"  # type: ignore[attr-defined]


def derived(ratio: float = 0.9, servers: int = 0, rounds: int = 6, **own: Any) -> list[str]:
    """The steps of an effect whose rounds scatter evenly about a ratio, judged among two comparisons."""
    scatter = 1 + 0.001 * np.linspace(-1, 1, rounds)
    times = rounds_of(np.array([np.ones(rounds), ratio * scatter, scatter[::-1]]), servers)
    effects = effects_of(3)
    derivation = decide(times, effects, {}, math.log1p(0.01)).derivation(effects[0], times)
    assert derivation is not None
    derivation = replace(derivation, floor=own.pop("floor", 0.0))
    result = EffectResult(effects[0], "a", "b", derivation.judgement.verdict, derivation=derivation, **own)
    return explanation(Comparison("demo", "pair", 0.05, None, (result,), (), ()), result)


def test_the_steps_say_estimate_interval_correction_margin_and_floor() -> None:
    _, _, _, estimate, interval, correction, margin, floor, _ = derived(floor=math.log(1.02))
    assert (
        estimate == "estimate: 1.11x faster from 6 pairs, 6 values that intervals may count (pooled variance)"
    )
    assert re.fullmatch(
        r"95 % interval: 1\.1\d .. 1\.1\d; standard error 0\.0\d% with [\d.]+ degrees of freedom",
        interval.replace("\u00a0", " "),
    )
    assert "among 2 comparisons Holm reads it at 97.50%: " in correction
    assert correction.endswith(", and rejects no effect")
    assert margin == "margin: 5.0 % either way makes no difference"
    assert floor == "floor: placebos, which equal the baseline, show up to 2.00%"
    assert not [line for line in derived() if line.startswith("floor")]
    assert any(line.endswith(", and keeps no effect") for line in derived(1.0))
    assert derived(servers=3)[3].startswith("estimate: 1.11x faster from 6 pairs of 3 servers, 3 values")
    assert derived(rounds=1)[4].startswith("no interval: one round"), "and there it stops"
