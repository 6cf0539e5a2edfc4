"""The picture of effects: its rows, its points, and an axis that can be read at every width."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib import rc_context
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.todo import ToDo
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.pictures import svg
from perfsweep.pipelines.report.pictures.effects_chart import LOOKS, chart, effect_rows, limits, speed_ticks
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.api import Parity


def effect(
    toggle: str, verdict: Verdict, ratio: float, spread: float = 1.1, design: str = "one_at_a_time"
) -> EffectResult:
    made = Effect(id=toggle, design=design, toggle=toggle, level="on", pairs=((toggle, "base"),))
    results = ParityVerdict.DIFFERENT if verdict is Verdict.DIFFERENT else ParityVerdict.IDENTICAL
    parity = ParityResult(results, Parity.EXACT)
    return EffectResult(made, toggle, "base", verdict, ratio, ratio / spread, ratio * spread, parity=parity)


FAST = effect("fast", Verdict.FASTER, 0.5)
FASTER = effect("faster", Verdict.FASTER, 0.25)
SLOW = effect("slow", Verdict.SLOWER, 1.6)
OPEN = effect("open", Verdict.UNDECIDED, 0.98)
OTHER = effect("other", Verdict.DIFFERENT, 0.1)
NO_TIME = EffectResult(FAST.effect, "none", "base", None, outcome="unsupported")
SOME = (SLOW, FAST, OPEN, OTHER, NO_TIME, FASTER)


def comparison(*effects: EffectResult) -> Comparison:
    return Comparison("demo", "pair", 0.01, None, effects, (), ())


def names(*effects: EffectResult) -> list[str]:
    return [row.name for row in effect_rows(comparison(*effects))]


def test_rows_stand_as_in_the_table_below_what_to_do_about_them() -> None:
    turn_on, off, changes, unsure = "TURN ON", "LEAVE OFF", "CHANGES RESULTS", "NOT DECIDED"
    assert names(*SOME) == [
        *(turn_on, "faster=on", "fast=on"),
        *(off, "slow=on"),
        *(changes, "other=on"),
        *(unsure, "open=on"),
    ]


def test_of_several_designs_the_heading_says_which_and_steps_stay_in_order() -> None:
    steps = [
        effect(name, FAST.verdict or Verdict.FASTER, ratio, design="chain")
        for name, ratio in (("b", 0.9), ("a", 0.5))
    ]
    assert names(FAST, *steps) == ["one at a time: TURN ON", "fast=on", "chain", "b=on", "a=on"]


def test_each_point_has_the_speed_of_its_row_in_the_colour_and_the_form_of_what_to_do() -> None:
    rows = effect_rows(comparison(*SOME))
    axes = chart(rows, 0.01, svg.WIDE).axes[0]
    points = {
        round(float(one.get_offsets()[0][1])): one for one in axes.collections if len(one.get_offsets())
    }
    looks = {}
    for place, row in enumerate(rows):
        if row.result and place in points:
            speed = float(points[place].get_offsets()[0][0])
            assert speed == pytest.approx(row.result.speed)
            looks[row.name] = tuple(points[place].get_edgecolors()[0])
    assert looks["fast=on"] == to_rgba(svg.GREEN) and looks["slow=on"] == to_rgba(svg.RED)
    assert looks["open=on"] == to_rgba(svg.AMBER)
    assert [row.figure for row in rows if row.name in ("fast=on", "slow=on", "other=on")] == [
        "2.00x faster [1.82 .. 2.20]",
        "1.60x slower [1.45 .. 1.76]",
        "different",
    ]


def test_a_form_says_what_a_colour_says() -> None:
    seen = [LOOKS[one] for one in ToDo]
    assert all(
        a.marker != b.marker or a.filled != b.filled for a in seen for b in seen if a.colour != b.colour
    )


def texts_of(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    """Left and right pixels of the names of ticks, in the order of the axis."""
    figure.draw_without_rendering()
    axes = figure.axes[0]
    boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
    return {"ticks": sorted((box.x0, box.x1) for box in boxes), "plot": [axes.get_window_extent().intervalx]}


@pytest.mark.parametrize("width", [svg.WIDE, svg.HALF, svg.NARROW])
@pytest.mark.parametrize("ratios", [(0.99, 1.01), (0.6, 1.3), (0.001, 1.2), (0.01, 300.0)])
def test_names_of_the_axis_never_overlap_and_points_have_room(
    width: int, ratios: tuple[float, float]
) -> None:
    effects = [effect(f"toggle_{ratio:g}", Verdict.UNDECIDED, ratio, 1.02) for ratio in ratios]
    with rc_context(svg.STYLE):
        found = texts_of(chart(effect_rows(comparison(*effects)), 0.01, width))
    assert len(found["ticks"]) >= 2 and all(left[1] < right[0] for left, right in pairwise(found["ticks"]))
    ((left, right),) = found["plot"]
    assert right - left >= 120


def test_an_interval_that_reaches_far_does_not_squeeze_the_others() -> None:
    low, high = limits([FAST, effect("wild", Verdict.UNDECIDED, 1.0, 1000.0)], 0.01)
    assert 1 / 4 < low < 1 and 2 < high < 10
    rows = effect_rows(comparison(FAST, effect("wild", Verdict.UNDECIDED, 1.0, 1000.0)))
    ends = [float(one.get_offsets()[0][0]) for one in chart(rows, 0.01, svg.WIDE).axes[0].collections]
    assert min(ends) >= 0 and len(ends) == 6, "two intervals, two points, and an arrow at each end of one"


def test_ticks_are_factors_with_their_direction_and_one_is_the_same() -> None:
    assert speed_ticks(0.4, 2.5, 400) == {
        0.5: "2x\nslower",
        1 / 1.5: "1.5x\nslower",
        1: "same",
        1.5: "1.5x\nfaster",
        2: "2x\nfaster",
    }
    assert list(speed_ticks(1e-3, 1e3, 160).values()) == ["100x\nslower", "same", "100x\nfaster"]
