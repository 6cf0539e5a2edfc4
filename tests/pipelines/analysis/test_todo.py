"""What to do about each effect, in which order, and which levels are to be turned on at once."""

from __future__ import annotations

import itertools

import pytest

from perfsweep.pipelines.analysis.effect_result import EffectResult, ToDo, by_todo, fastest, todo, winners
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.api import Parity

NUMBERS = itertools.count()


def effect(
    name: str = "a=1",
    verdict: Verdict | None = Verdict.FASTER,
    ratio: float | None = 0.9,
    parity: ParityVerdict | None = ParityVerdict.IDENTICAL,
    design: str = "one_at_a_time",
    base: str = "base",
    outcome: str = "",
) -> EffectResult:
    """The effect of a level, whose arm has the id ``a=1`` of the level."""
    toggle, _, level = name.partition("=")
    made = Effect(id=f"{next(NUMBERS)}", design=design, toggle=toggle, level=level, pairs=((name, base),))
    known = ParityResult(parity, Parity.EXACT) if parity else None
    return EffectResult(made, name, "baseline", verdict, ratio, parity=known, outcome=outcome)


@pytest.mark.parametrize(
    ("name", "verdict", "parity", "asked"),
    [
        ("a=1", Verdict.FASTER, ParityVerdict.IDENTICAL, ToDo.TURN_ON),
        ("a=1", Verdict.FASTER, ParityVerdict.UNCHECKED, ToDo.UNCHECKED),
        ("a=1", Verdict.FASTER, None, ToDo.UNCHECKED),
        ("a=1", Verdict.SLOWER, ParityVerdict.IDENTICAL, ToDo.LEAVE_OFF),
        ("a=1", Verdict.DIFFERENT, ParityVerdict.DIFFERENT, ToDo.CHANGES_RESULTS),
        ("a=1", Verdict.FEWER_UNITS, ParityVerdict.IDENTICAL, ToDo.LESS_WORK),
        ("a=1", Verdict.NO_DIFFERENCE, ParityVerdict.IDENTICAL, ToDo.NO_DIFFERENCE),
        ("a=1", Verdict.UNDECIDED, ParityVerdict.IDENTICAL, ToDo.UNDECIDED),
        ("a=1", Verdict.HELD_BACK, ParityVerdict.IDENTICAL, ToDo.TOO_NOISY),
        ("a=1", None, ParityVerdict.IDENTICAL, ToDo.NO_TIME),
        ("a x b", Verdict.FASTER, ParityVerdict.IDENTICAL, ToDo.MORE_TOGETHER),
        ("a x b", Verdict.SLOWER, ParityVerdict.IDENTICAL, ToDo.LESS_TOGETHER),
    ],
)
def test_each_verdict_asks_for_one_thing(
    name: str, verdict: Verdict | None, parity: ParityVerdict | None, asked: ToDo
) -> None:
    assert todo(effect(name, verdict, parity=parity)) is asked
    assert todo(effect(verdict=verdict, outcome="inert")) is ToDo.NOT_HERE
    assert todo(effect(verdict=verdict, outcome="base failed")) is ToDo.NO_TIME


def test_effects_come_by_what_to_do_and_the_fastest_of_each_group_first() -> None:
    order = [
        effect("b=1", Verdict.FASTER, 0.4),
        effect("a=1", Verdict.FASTER, 0.9),
        effect("u=1", Verdict.FASTER, 0.1, parity=None),
        effect("s=2", Verdict.SLOWER, 1.1),
        effect("s=1", Verdict.SLOWER, 1.2),
        effect("n=1", Verdict.UNDECIDED, 0.95),
        effect("n=2", Verdict.UNDECIDED, None),
        effect("z=1", None, None, outcome="oom"),
    ]
    assert by_todo(reversed(order)) == order


def names(effects: list[EffectResult]) -> list[str]:
    return [one.arm_label for one in effects]


@pytest.mark.parametrize(
    "loser",
    [
        effect("a=2", ratio=0.1, parity=ParityVerdict.UNCHECKED),
        effect("a=2", Verdict.DIFFERENT, 0.1, ParityVerdict.DIFFERENT),
        effect("a=2", ratio=0.1, design="leave_one_out"),
        effect("a=2", ratio=0.1, base="another reference"),
        effect("a=2", outcome="inert"),
    ],
)
def test_only_levels_measured_alone_against_the_first_reference_with_the_same_results_win(
    loser: EffectResult,
) -> None:
    assert names(winners([effect("a=1"), loser], "base", {})) == ["a=1"]
    assert winners([loser], "base", {}) == []


def test_a_level_on_top_of_a_winner_wins_after_it_however_large_its_gain() -> None:
    effects = [
        effect("c=1", ratio=0.1, base="b=1"),
        effect("d=1", ratio=0.2, base="c=1"),
        effect("a=1", ratio=0.9),
        effect("b=1", ratio=0.8),
        effect("b=2", ratio=0.85),
        effect("e=1", ratio=0.1, base="b=2"),
        effect("a=2", ratio=0.1, base="b=1"),
    ]
    assert names(winners(effects, "base", {})) == ["b=1", "a=1", "c=1", "d=1"]


@pytest.mark.parametrize("design", ["one_at_a_time", "arms", "chain", "ladder", "leave_one_out"])
def test_the_fastest_arm_is_of_any_design_and_against_the_first_reference(design: str) -> None:
    arm = effect("exact vs naive", ratio=0.5, design=design)
    others = [
        effect("a=1", ratio=0.6),
        effect("b=1", ratio=0.1, base="a=1"),
        effect("c=1", ratio=0.2, parity=None),
        effect("d=1", Verdict.DIFFERENT, 0.3, ParityVerdict.DIFFERENT),
        effect("placebo=1", ratio=0.4, design="placebo"),
    ]
    assert fastest([*others, arm], "base") == arm
    assert fastest(others[1:], "base") is None
