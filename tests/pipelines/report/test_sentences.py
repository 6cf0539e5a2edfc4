"""What a comparison says in words: its headline, a line for each kind of verdict, and the notes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.sentences import answer, footnotes, headline, opening
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.api import Parity

SAME = ParityResult(ParityVerdict.IDENTICAL, Parity.EXACT)


def effect(name: str, verdict: Verdict | None, ratio: float | None = None, **fields: object) -> EffectResult:
    """The effect of a level, as ``toggle=level``, with the same results unless told otherwise."""
    toggle, level = name.split("=") if "=" in name else (name, "")
    design = str(fields.pop("design", "one_at_a_time"))
    made = Effect(id=name, design=design, toggle=toggle, level=level, pairs=(("a", "b"),))
    values = {"parity": SAME, "ratio": ratio, **fields}
    return EffectResult(made, name, str(values.pop("base", "baseline")), verdict, **values)  # type: ignore[arg-type]


def comparison(*effects: EffectResult, **fields: object) -> Comparison:
    return replace(
        Comparison("demo", "pair", 0.01, Reference("naive", 1.5e6, 6), effects, (), ()),
        **fields,  # type: ignore[arg-type]
    )


def test_the_headline_has_the_references_time_and_how_to_read_the_rest() -> None:
    words = (
        "reference naive takes 1.5 ms per pair (median of 6 rounds); time = change against the base, less is"
        " faster"
    )
    assert headline(comparison()) == words
    assert opening(comparison()) == f"R{words[1:]}."
    assert headline(comparison(reference=None)) == "no reference has a finished round yet"


UNCHECKED = ParityResult(ParityVerdict.UNCHECKED, Parity.EXACT)


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (effect("a=1", Verdict.FASTER, 0.9), "faster, with the same results: a=1 (-10.0 %)"),
        (effect("a=1", Verdict.FASTER, 0.9, parity=UNCHECKED), "faster, results unchecked: a=1 (-10.0 %)"),
        (effect("a=1", Verdict.FASTER, 0.9, parity=None), "faster, results unchecked: a=1 (-10.0 %)"),
        (effect("a=1", Verdict.SLOWER, 1.1), "slower: a=1 (+10.0 %)"),
        (effect("a x b", Verdict.FASTER, 0.9), "less time together than apart lets expect: a x b (-10.0 %)"),
        (effect("a x b", Verdict.SLOWER, 1.1), "more time together than apart lets expect: a x b (+10.0 %)"),
        (effect("a x b", Verdict.NO_DIFFERENCE, 1.0), "no difference: a x b (+0.0 %)"),
        (effect("a=1", Verdict.DIFFERENT, 0.9), "changes results, so its time does not count: a=1 (-10.0 %)"),
        (
            effect("a=1", Verdict.FEWER_UNITS, 0.9),
            "does less work, so its time does not count: a=1 (-10.0 %)",
        ),
        (effect("a=1", Verdict.UNDECIDED, 0.9), "not decided by this many rounds: a=1 (-10.0 %)"),
        (
            effect("a=1", Verdict.HELD_BACK, 0.9),
            "held back: nothing is said, and the notes say why: a=1 (-10.0 %)",
        ),
        (effect("a=1", None), "no time: a=1 (no rounds yet)"),
        (effect("a=1", None, outcome="oom"), "no time: a=1 (oom)"),
        (effect("a=1", Verdict.FASTER, outcome="inert"), "no time: a=1 (inert)"),
    ],
)
def test_each_kind_of_verdict_has_a_line_of_its_own(result: EffectResult, line: str) -> None:
    assert answer(comparison(result)) == [line]


def test_what_is_faster_comes_first_and_within_a_line_the_fastest() -> None:
    lines = answer(
        comparison(
            effect("z=1", None, outcome="oom"),
            effect("s=1", Verdict.SLOWER, 1.2),
            effect("a=1", Verdict.FASTER, 0.9),
            effect("b=1", Verdict.FASTER, 0.4),
            effect("s=2", Verdict.SLOWER, 1.1),
        )
    )
    assert lines == [
        "faster, with the same results: b=1 (2.5x less), a=1 (-10.0 %)",
        "slower: s=2 (+10.0 %), s=1 (+20.0 %)",
        "no time: z=1 (oom)",
    ]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, ", and 1 more"), (8, ", and 3 more")])
def test_five_are_named_and_the_rest_counted(count: int, more: str) -> None:
    effects = [effect(f"a={n}", Verdict.SLOWER, 1.1 + n / 100) for n in range(count)]
    (line,) = answer(comparison(*effects))
    assert line.endswith(f"a=4 (+14.0 %){more}")
    assert line.count("a=") == 5


def test_where_there_are_several_designs_each_name_says_which_is_meant() -> None:
    lines = answer(
        comparison(
            effect("a=1", Verdict.FASTER, 0.9),
            effect("a=1", Verdict.SLOWER, 1.1, design="leave_one_out"),
            effect("copy", Verdict.UNDECIDED, 1.0, design="placebo"),
        )
    )
    assert lines[:2] == [
        "faster, with the same results: a=1 (-10.0 %, one at a time)",
        "slower: a=1 (+10.0 %, leave one out)",
    ]


def test_placebos_make_no_second_design() -> None:
    placebo = effect("copy", Verdict.NO_DIFFERENCE, 1.0, design="placebo")
    assert answer(comparison(effect("a=1", Verdict.FASTER, 0.9), placebo)) == [
        "faster, with the same results: a=1 (-10.0 %)",
        "no difference: copy (+0.0 %)",
    ]


def test_effects_that_share_a_name_say_what_they_are_against() -> None:
    (line,) = answer(
        comparison(
            effect("a=1", Verdict.SLOWER, 1.1, base="late"),
            effect("a=1", Verdict.SLOWER, 1.2),
            effect("b=1", Verdict.SLOWER, 1.3),
        )
    )
    assert line == "slower: a=1 against late (+10.0 %), a=1 against baseline (+20.0 %), b=1 (+30.0 %)"


def test_one_note_of_several_effects_is_said_once() -> None:
    lines = footnotes(
        comparison(
            effect("a=1", Verdict.SLOWER, 1.1, note="a=1: was warm"),
            effect("b=1", Verdict.SLOWER, 1.1, note="b=1: was warm"),
            effect("b=1", Verdict.SLOWER, 1.1, note="was warm"),
            effect("c=1", Verdict.SLOWER, 1.1, note="something else"),
        )
    )
    assert lines == ["a=1, b=1: was warm", "c=1: something else"]


@pytest.mark.parametrize(
    ("iterations", "lines"),
    [
        (1200.2, ["a=1: its one-off cost is repaid after 1,201 iterations"]),
        (1.5, ["a=1: its one-off cost is repaid after 2 iterations"]),
        (1.0, []),
        (0.3, []),
        (None, []),
    ],
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


def test_the_number_behind_an_undecided_verdict_is_explained_where_there_is_one() -> None:
    words = "undecided (n): about n rounds would decide, if the estimate stayed"
    assert footnotes(comparison(effect("a=1", Verdict.UNDECIDED, 0.99, rounds_needed=40))) == [words]
    assert footnotes(comparison(effect("a=1", Verdict.UNDECIDED, 0.99))) == []
