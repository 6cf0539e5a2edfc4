"""Trade-offs: which arms are worth choosing, by an oracle that tries all pairs, and the picture."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from measured import change, compared, cost, simulated, with_everything

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report import html
from perfsweep.pipelines.report.pictures import svg
from perfsweep.pipelines.report.pictures.trade_off import (
    NAMED,
    Box,
    Choice,
    TradeOff,
    chart,
    judged,
    trade_off,
)
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Effect, Manifest, SweepFolder
from perfsweep.pipelines.store.schema import PLACEBO
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import Parity

MARGIN = 0.01


def choice(name: str, ns: float, value: float, cost: float | None = None, same: bool = True) -> Choice:
    return Choice(name, ns, value, cost, same)


def kept(*choices: Choice, margin: float = MARGIN) -> list[str]:
    return [one.name for one in judged(choices, margin) if not one.dominated]


def test_who_is_slower_and_larger_is_left_out_and_the_fastest_comes_first() -> None:
    assert kept(choice("slow", 30, 9), choice("lean", 20, 1), choice("fast", 10, 5)) == ["fast", "lean"]


def test_a_difference_within_the_margin_leaves_nobody_out() -> None:
    assert kept(choice("a", 100.0, 10.0), choice("b", 100.5, 10.0)) == ["a", "b"]
    assert kept(choice("a", 100.0, 10.0), choice("b", 102.0, 10.0)) == ["a"]


def test_money_is_a_third_reason_to_stay() -> None:
    two_gpus = choice("two GPUs", 6, 9, cost=12.0)
    assert kept(two_gpus, choice("one GPU", 10, 9, cost=10.0)) == ["two GPUs", "one GPU"]
    assert kept(two_gpus, choice("one GPU", 10, 9, cost=13.0)) == ["two GPUs"]


def test_an_arm_with_other_results_beats_nobody() -> None:
    assert kept(choice("wrong", 1, 1, same=False), choice("right", 10, 5))[-1] == "right"


def test_a_time_that_is_held_back_beats_nobody_and_is_beaten_by_nobody() -> None:
    lucky = Choice("lucky", 1, 1, timed=False)
    unlucky = Choice("unlucky", 99, 99, timed=False)
    assert kept(lucky, choice("a", 10, 5), choice("b", 20, 9), unlucky) == ["lucky", "a", "unlucky"]


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
        (told(("b", "a"), contrast={"a": -1.0, "b": 1.0, "c": 0.0, "d": 0.0}), "acd"),
        (told(("d", "a"), contrast={"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}), "abcd"),
    ],
    ids=["pair", "same", "less work", "unchecked", "main effect", "of two arms", "interaction"],
)
def test_arms_with_the_level_that_changes_results_are_no_choices(effect: EffectResult, same: str) -> None:
    assert {one.name for one in weighed(effect).choices if one.same} == set(same)


def test_a_placebo_is_no_choice_beside_the_arm_that_it_equals() -> None:
    found = weighed(told(("d", "a"), design=PLACEBO, parity=ParityVerdict.IDENTICAL))
    assert {one.name for one in found.choices} == set("abc")


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


def test_of_a_sweep_that_is_held_back_the_picture_chooses_nothing(command: Callable) -> None:
    """Its arm takes half the time, which nobody may say once every trial was disturbed."""
    made = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 4})
    folder, manifest = simulated(made, cost)
    told = page(folder, manifest)
    for record in folder.path.glob("trials/*/*-r*/record.json"):
        change(record, disturbed=["GPU-1: power brake"])
    held = page(folder, manifest)
    choice_made, none_made = (
        "Filled points, joined by a dashed line, are the Pareto front",
        "No comparison of times here has a verdict",
    )
    assert choice_made in told and none_made not in told
    assert choice_made not in held and none_made in held


def test_rounds_that_drift_do_not_order_arms_otherwise_than_their_pairs(command: Callable) -> None:
    """The arm takes a tenth less in all rounds but the middling one, so that its median is the higher one."""
    made = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 5})
    folder, manifest = simulated(made, cost)
    ((arm, base),) = manifest.effects[0].pairs
    for number, speed in enumerate((1, 2, 4, 8, 16)):
        for name, ratio in ((base, 1.0), (arm, 1.3 if number == 2 else 0.9)):
            (record,) = folder.path.glob(f"trials/{name}/*-r{number:03d}-*/record.json")
            change(record, region_ns=round(speed * ratio * 1e9))
    comparison = compared(folder, manifest)
    medians = {one.id: one.ns_per_unit for one in comparison.arms}
    assert medians[arm] > medians[base]  # type: ignore[operator]
    found = trade_off(comparison)
    assert found is not None
    assert [one.dominated for one in found.choices] == [False, True]
    assert found.choices[0].ns_per_unit < found.choices[1].ns_per_unit == medians[base]


def page(folder: SweepFolder, manifest: Manifest) -> str:
    provenance = read_provenance(folder.config_file, [])
    comparison = compared(folder, manifest)
    trials = pl.read_parquet(folder.tables_dir / "trials.parquet")
    html.write_html(folder, manifest, comparison, trials, provenance)
    return folder.report_file.read_text()


def test_equal_arms_all_stay() -> None:
    assert kept(*(choice(name, 5, 5) for name in "abc")) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.slow
def test_a_sweep_weighs_time_against_memory_and_against_energy_where_that_is_chosen(tmp_path: Path) -> None:
    folder, manifest = with_everything(tmp_path, rounds=3, iterations=0)
    found = trade_off(compared(folder, manifest))
    assert found is not None and found.of == "memory"
    for record in folder.path.glob("trials/*/*-r*/record.json"):
        change(record, quantities={"energy_j": 12.0, "devices": 1.0})
    chosen = {"report": ReportConfig(["energy", "cost"]), "price": "2/GPU-hour"}
    priced = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update=chosen)})
    found = trade_off(compared(folder, priced))
    assert found is not None and found.of == "energy"
    assert all(one.cost is not None for one in found.choices)
    # A ladder's size that ran out of memory has no time, and so is no choice.
    assert {one.name for one in found.choices}.isdisjoint({"slab=64"})


def test_the_picture_names_who_stays_with_what_a_million_cost() -> None:
    found = TradeOff("energy", judged([choice("lean", 2e4, 1, 7.5), choice("fast", 1e4, 5, 8.25)], MARGIN))
    text = svg.one(partial(chart, found), "t", "t")
    assert "lean" in text and "7.5 per million" in text and "8.25 per million" in text
    assert "J per unit" in text and "microseconds per unit" in text


def test_arms_far_apart_stand_on_logarithmic_axes() -> None:
    wide = TradeOff("memory", judged([choice("a", 1e3, 2**20), choice("b", 1e6, 2**10)], MARGIN))
    figure = chart(wide, svg.WIDE)
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")


@pytest.mark.parametrize("width", [svg.WIDE, svg.NARROW])
def test_no_name_lies_over_a_point_where_its_other_side_is_free(width: int) -> None:
    """The place of names is chosen before the layout is, so they are drawn once more to be looked at."""
    near = [choice("zero_grad=none", 65_200, 295 * 2**20), choice("baseline", 66_400, 299 * 2**20)]
    best = [
        choice("gc=frozen", 42_000, 296 * 2**20),
        choice("amp=bf16", 61_900, 290 * 2**20),
        choice("optimizer=fused", 64_200, 289.5 * 2**20),
        choice("micro_batch=32", 79_700, 289 * 2**20),
    ]
    figure = chart(TradeOff("memory", judged([*best, *near], 0.0005)), width)
    (axes,), canvas = figure.axes, FigureCanvasAgg(figure)
    canvas.draw()
    points = [axes.transData.transform((one.ns_per_unit / 1e3, one.value / 2**20)) for one in [*best, *near]]
    boxes = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert set(boxes) == {one.name for one in best}
    assert [name for name, box in boxes.items() if any(box.contains(*point) for point in points)] == []


BOX = Box(left=10, right=20, bottom=100, top=110)


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (Box(15, 25, 105, 115), True),
        (Box(20, 30, 100, 110), False),  # side by side
        (Box(0, 10, 100, 110), False),
        (Box(10, 20, 110, 120), False),  # one above the other
        (Box(10, 20, 90, 100), False),
        (Box(0, 30, 90, 120), True),
        (Box(12, 13, 104, 105), True),
        (Box(15, 25, 50, 60), False),
    ],
)
def test_two_names_meet_where_they_would_lie_over_each_other(other: Box, meets: bool) -> None:
    assert BOX.meets(other) is meets and other.meets(BOX) is meets


def test_points_under_a_name_are_counted() -> None:
    points = np.array([[15, 105], [11, 101], [10, 105], [15, 110], [5, 105], [15, 95], [25, 105]])
    assert BOX.count(points) == 2


def drawn(*choices: Choice, of: str = "memory", width: int = svg.WIDE):
    (axes,) = chart(TradeOff(of, choices), width).axes
    return axes


def at(name: str, us: float, value: float, **fields: object) -> Choice:
    return Choice(name, us * 1e3, value, **fields)  # type: ignore[arg-type]


TWO = (at("a", 10, 6 * MB), at("b", 20, 3 * MB))


@pytest.mark.parametrize(("of", "y"), [("memory", "peak memory, MB"), ("energy", "J per unit")])
def test_axes_say_what_is_weighed(of: str, y: str) -> None:
    axes = drawn(*TWO, of=of)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("microseconds per unit", y)


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


def test_energy_is_drawn_as_it_is_and_what_a_million_costs_stands_below_the_name() -> None:
    axes = drawn(at("a", 10, 6.0, cost=7.5), at("b", 20, 3.0, cost=8.0), of="energy")
    assert groups(axes)[3] == [(10, 6), (20, 3)]
    assert {text.get_text().split("\n")[1] for text in axes.texts} == {"7.5 per million", "8 per million"}


LONG = "precision_schedule=warm_bf16"


@pytest.mark.parametrize(("width", "lines"), [(svg.NARROW, 3), (svg.CELL, 3), (svg.WIDE, 1)])
def test_long_names_fold_where_the_picture_is_narrow(width: int, lines: int) -> None:
    (text,) = drawn(at(LONG, 10, 6 * MB), width=width).texts
    assert "".join(text.get_text().split()) == LONG
    assert len(text.get_text().split("\n")) == lines


def test_names_go_over_and_under_their_points_by_turns() -> None:
    axes = drawn(at("a", 10, 40 * MB), at("b", 25, 30 * MB), at("c", 40, 20 * MB))
    assert {text.get_text(): text.get_verticalalignment() for text in axes.texts} == {
        "a": "bottom",
        "b": "top",
        "c": "bottom",
    }


def test_no_more_arms_are_named_than_can_be_read() -> None:
    axes = drawn(*(at(str(n), 10 + n, (40 - n) * MB) for n in range(NAMED + 4)))
    assert {text.get_text() for text in axes.texts} <= {str(n) for n in range(NAMED)}


@pytest.mark.parametrize(("largest", "scale"), [(50, "linear"), (51, "log")])
def test_from_five_times_the_smallest_on_an_axis_is_logarithmic(largest: float, scale: str) -> None:
    axes = drawn(at("a", 10, largest * MB), at("b", largest, 10 * MB))
    assert (axes.get_xscale(), axes.get_yscale()) == (scale, scale)
