"""Trade-offs: which arms are worth choosing, by an oracle that tries all pairs, and the picture."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report import svg
from perfsweep.pipelines.report.trade_off import Choice, TradeOff, chart, judged, trade_off
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import PLACEBO, Effect
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import Parity

MARGIN = 0.01


def choice(name: str, ns: float, value: float, cost: float | None = None, same: bool = True) -> Choice:
    return Choice(name, ns, value, cost, same)


def kept(*choices: Choice, margin: float = MARGIN) -> list[str]:
    return [one.name for one in judged(choices, margin) if not one.dominated]


def test_a_difference_within_the_margin_leaves_nobody_out() -> None:
    assert kept(choice("a", 100.0, 10.0), choice("b", 100.5, 10.0)) == ["a", "b"]
    assert kept(choice("a", 100.0, 10.0), choice("b", 102.0, 10.0)) == ["a"]


def test_an_arm_with_other_results_or_without_a_time_is_compared_with_none() -> None:
    lucky, unlucky = Choice("lucky", 1, 1, timed=False), Choice("unlucky", 99, 99, timed=False)
    wrong = choice("wrong", 2, 2, same=False)
    found = kept(lucky, wrong, choice("a", 10, 5), choice("b", 20, 9), unlucky)
    assert [name for name in found if name != "wrong"] == ["lucky", "a", "unlucky"]


def ran(name: str, **quantities: float) -> ArmResult:
    return ArmResult(name, 4, 10.0, 5 * MB, {}, id=name, paired_ns=10.0, quantities=quantities)


ARMS = tuple(map(ran, "abcd"))


def told(*pairs: tuple[str, str], **own: Any) -> EffectResult:
    """An effect whose results are other ones unless it says that they are the same."""
    verdict, parity = own.pop("verdict", Verdict.FASTER), own.pop("parity", ParityVerdict.DIFFERENT)
    effect = Effect(**{"id": "e", "design": "arms", "toggle": "t", "level": "on", "pairs": pairs, **own})
    return EffectResult(effect, "arm", "base", verdict, parity=ParityResult(parity, Parity.EXACT))


def weighed(*effects: EffectResult, arms: tuple[ArmResult, ...] = ARMS, **own: Any) -> TradeOff:
    found = trade_off(Comparison("demo", "pair", MARGIN, None, effects, arms, (), **own))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("effect", "same"),
    [
        (told(("b", "a")), "acd"),
        (told(("b", "a"), parity=ParityVerdict.IDENTICAL), "abcd"),
        (told(("b", "a"), parity=ParityVerdict.IDENTICAL, verdict=Verdict.FEWER_UNITS), "acd"),
        (told(("b", "a"), parity=ParityVerdict.UNCHECKED), "acd"),
        (told(("b", "a"), contrast={"a": -0.5, "b": 0.5, "c": -0.5, "d": 0.5}), "ac"),
        (told(("d", "a"), contrast={"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}), "abcd"),
    ],
    ids=["pair", "same", "less work", "unchecked", "main effect", "interaction"],
)
def test_arms_with_the_level_that_changes_results_are_no_choices(effect: EffectResult, same: str) -> None:
    assert {one.name for one in weighed(effect).choices if one.same} == set(same)


@pytest.mark.parametrize(
    ("arms", "of", "costs"),
    [
        ((ran("a", energy=2.0, cost=7.0), ran("b", energy=1.0, cost=8.0)), "energy", [7.0, 8.0]),
        ((ran("a", energy=2.0, cost=7.0), ran("b", energy=1.0)), "energy", [None, None]),
        ((ran("a", energy=2.0, cost=7.0), ran("b", cost=8.0)), "memory", [7.0, 8.0]),
    ],
    ids=["all is known", "one has no price", "one has no energy"],
)
def test_time_is_weighed_against_what_is_known_of_all(
    arms: tuple[ArmResult, ...], of: str, costs: list[float | None]
) -> None:
    found = weighed(arms=arms)
    assert (found.of, [one.cost for one in found.choices]) == (of, costs)


@pytest.mark.parametrize("seed", range(2))
def test_as_many_stay_as_by_trying_all_pairs(seed: int) -> None:
    import random

    draw = random.Random(seed)
    choices = [choice(str(n), draw.randint(1, 9), draw.randint(1, 9), draw.randint(1, 9)) for n in range(30)]
    beaten = set()
    for one, other in itertools.permutations(choices, 2):
        no_worse = one.ns_per_unit <= other.ns_per_unit and one.value <= other.value
        no_worse = no_worse and (one.cost or 0) <= (other.cost or 0)
        strictly = (one.ns_per_unit, one.value, one.cost) != (other.ns_per_unit, other.value, other.cost)
        if no_worse and strictly:
            beaten.add(other.name)
    assert set(kept(*choices, margin=0.0)) == {one.name for one in choices} - beaten


def drawn(*choices: Choice, of: str = "memory", width: int = svg.WIDE):
    (axes,) = chart(TradeOff(of, choices), width).axes
    return axes


def at(name: str, us: float, value: float, **fields: object) -> Choice:
    return Choice(name, us * 1e3, value, **fields)  # type: ignore[arg-type]


TWO = (at("a", 10, 6 * MB), at("b", 20, 3 * MB))


def groups(axes) -> list[list[tuple[float, float]]]:
    """Points of the four groups: beaten, without a time, with other results, best."""
    return [[tuple(map(float, point)) for point in one.get_offsets()] for one in axes.collections]


def test_the_line_joins_what_nobody_would_pass_by_and_each_kind_has_a_mark_of_its_own() -> None:
    axes = drawn(
        *TWO,
        at("beaten", 30, 9 * MB, dominated=True),
        at("untimed", 12, 5 * MB, timed=False),
        at("different", 5, 1 * MB, same=False),
        at("different and untimed", 6, 2 * MB, same=False, timed=False),
    )
    assert groups(axes) == [[(30, 9)], [(12, 5)], [(5, 1), (6, 2)], [(10, 6), (20, 3)]]
    (line,) = axes.lines
    assert [list(line.get_xdata()), list(line.get_ydata())] == [[10, 20], [6, 3]]
    assert {text.get_text() for text in axes.texts} == {"a", "b", "untimed"}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("microseconds per unit", "peak memory, MB")


@pytest.mark.parametrize(
    ("us", "value", "scales"),
    [(50, 15, ("linear", "linear")), (51, 15, ("log", "linear")), (50, 16, ("linear", "log"))],
)
def test_only_an_axis_of_which_one_end_is_more_than_five_times_the_other_is_logarithmic(
    us: float, value: float, scales: tuple[str, str]
) -> None:
    axes = drawn(at("a", 10, 3 * MB), at("b", us, value * MB))
    assert (axes.get_xscale(), axes.get_yscale()) == scales
    assert not [*axes.xaxis.get_minorticklocs(), *axes.yaxis.get_minorticklocs()], "whose names would overlap"


def test_energy_is_drawn_as_it_is_and_what_a_million_costs_stands_below_the_name() -> None:
    axes = drawn(at("a", 10, 6.0, cost=7.5), at("b", 20, 3.0, cost=8.0), of="energy")
    assert groups(axes)[3] == [(10, 6), (20, 3)]
    assert {text.get_text().split("\n")[1] for text in axes.texts} == {"7.5 per million", "8 per million"}
    assert axes.get_ylabel() == "J per unit"


def test_a_placebo_is_no_choice_beside_the_arm_that_it_equals() -> None:
    found = weighed(told(("d", "a"), design=PLACEBO, parity=ParityVerdict.IDENTICAL))
    assert {one.name for one in found.choices} == set("abc")
