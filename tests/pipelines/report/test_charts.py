"""The pictures of a report: their rows, axes and names, the series they show, and the SVG they become."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from planned_sweeps import arm

from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.combinations import Corners, Together
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.phases import PhaseShare
from perfsweep.pipelines.analysis.todo import ToDo
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report.pictures import charts, phases_chart, svg, waterfall_chart
from perfsweep.pipelines.report.pictures.chart_data import (
    POINTS,
    RoundTimes,
    SizeCurve,
    SizeResult,
    Spikes,
    Trace,
    last_traces,
    round_times,
    scaled_effects,
    size_curves,
    spikes,
    thin,
)
from perfsweep.pipelines.report.pictures.charts import fold
from perfsweep.pipelines.report.pictures.effects_chart import LOOKS, chart, effect_rows, limits, speed_ticks
from perfsweep.pipelines.report.pictures.memory_chart import (
    MOST_POINTS,
    PICTURE,
    arm_courses,
    thinned,
    write_picture,
)
from perfsweep.pipelines.report.pictures.memory_chart import chart as memory_chart
from perfsweep.pipelines.report.pictures.phases_chart import OTHERS, REST, breakdown
from perfsweep.pipelines.report.pictures.svg import (
    BLUE,
    CELL,
    DAY,
    INK,
    LINE,
    NARROW,
    NIGHT,
    WIDE,
    alone,
    canvas,
    drawn,
    one,
)
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, Profile, write_course
from perfsweep.pipelines.store.records import Arm, Effect, write_iterations
from perfsweep.workloads.api import Parity


@pytest.mark.parametrize("most", [22, 28])
def test_long_names_fold_after_commas_spaces_and_what_joins_words(most: int):
    name = "label_free=on (with active_set, csc_layout, precision_schedule=warm_bf16_then_fp32)"
    assert "".join(fold(name, most).split()) == "".join(name.split())
    assert max(map(len, fold(name, most).split("\n"))) <= most
    assert fold("amp=bf16", most) == "amp=bf16"


def test_a_figure_is_as_high_as_its_names_need():
    name = "label_free=on (with active_set, csc_layout, compile, warm_start)"
    short, long = (charts.memory([label] * 3, [1.0] * 3, svg.NARROW) for label in ("amp=bf16", name))
    assert long.get_figheight() > short.get_figheight()
    few, many = (charts.memory(["a"] * count, [1.0] * count, svg.WIDE) for count in (24, 25))
    assert few.get_figheight() > many.get_figheight(), "many rows stand closer"
    ends = [one.axes[0].xaxis.get_tick_params()["labeltop"] for one in (few, many)]
    assert ends == [False, True], "of many rows the axis is written at both ends"


def test_equal_figures_are_drawn_equally_and_share_no_name_with_others():
    first, again, other = (svg.one(partial(charts.memory, ["a"], [1.0]), name, "f") for name in "aab")
    assert first == again
    names = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (first, other)]
    assert names[0] and not names[0] & names[1]
    assert "<script" not in first and 'aria-label="f"' in first


def test_the_label_of_a_figure_is_no_markup():
    assert 'aria-label="&lt;b&gt; &amp;' in svg.one(partial(charts.memory, ["a"], [1.0]), "f", "<b> & c")


def scaled(
    toggle: str, ranks: int, work: Work, efficiency: float, verdict: Verdict | None = None
) -> EffectResult:
    effect = Effect(id=f"{toggle}{ranks}", design="ladder", toggle=toggle, level=str(ranks), pairs=())
    found = Scaling(ranks, 1, work, efficiency, efficiency - 0.1, efficiency + 0.1)
    return EffectResult(effect, f"{toggle}={ranks}", "baseline", verdict, scaling=found)


def test_strong_and_weak_scaling_are_lines_of_their_own_with_their_efficiency_beside_each_point():
    strong = [scaled("ddp", 2, Work.STRONG, 0.8), scaled("ddp", 4, Work.STRONG, 0.5)]
    weak = [scaled("ddp_weak", 4, Work.WEAK, 0.9), scaled("ddp_weak", 2, Work.WEAK, 0.95)]
    (axes,) = charts.scaling([*weak, *strong], svg.WIDE).axes
    drawn = {str(line.get_label()): line for line in axes.lines}
    assert list(drawn["ddp, strong scaling"].get_ydata()) == [1.0, 1.6, 2.0]
    assert list(drawn["ddp_weak, weak scaling"].get_xdata()) == [1.0, 2.0, 4.0]
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == list(drawn)
    heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heights.keys() == {"80%", "50%", "95%", "90%"}
    bars = [segment.tolist() for one in axes.collections for segment in one.get_segments()]
    assert [[2.0, pytest.approx(1.4)], [2.0, pytest.approx(1.8)]] in bars, "intervals stand at their points"
    assert heights["80%"] < 0 < heights["95%"], "names of strong scaling stand below their points"


def test_a_discarded_job_does_not_stretch_the_axis_of_iterations() -> None:
    trace = Trace("a", "a", (0.0,), (600.0,), (1.0, 2.0), (4.0, 5.0))
    assert charts.iterations([trace], svg.WIDE).axes[0].get_ylim()[1] < 10


@pytest.mark.parametrize("verdict", [Verdict.HELD_BACK, Verdict.DIFFERENT, Verdict.FEWER_UNITS], ids=str)
def test_ranks_whose_time_does_not_count_are_not_drawn(verdict: Verdict):
    told = scaled("ddp", 2, Work.STRONG, 0.8, Verdict.UNDECIDED)
    assert scaled_effects([told, scaled("ddp", 4, Work.STRONG, 0.5, verdict)]) == [told]


def points(axes) -> list[tuple[float, float]]:
    """Points of the last scatter that was drawn."""
    return [(round(float(x), 6), round(float(y), 6)) for x, y in axes.collections[-1].get_offsets()]


def line(one) -> tuple[list[float], list[float]]:
    return [float(x) for x in one.get_xdata()], [round(float(y), 6) for y in one.get_ydata()]


CORNERS = Corners(("a", "b"), ("off", "low"), ("on", "high"), 0.5, 0.8, 0.3)


def test_an_interaction_is_a_line_for_each_level_of_the_second_and_one_of_what_was_to_be_expected() -> None:
    (axes,) = charts.interaction(CORNERS, svg.WIDE).axes
    assert {one.get_label(): line(one)[1] for one in axes.lines} == {
        "b=low": [1.0, 0.5],
        "b=high": [0.8, 0.3],
        "if neither touched the other": [0.8, 0.4],
    }
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a=off", "a=on"]


@pytest.mark.parametrize(("both", "scale"), [(0.6, "linear"), (0.01, "log")])
def test_interactions_of_large_factors_stand_on_a_logarithmic_axis(both: float, scale: str) -> None:
    (axes,) = charts.interaction(replace(CORNERS, first=0.7, both=both), svg.WIDE).axes
    assert axes.get_yscale() == scale


def test_rounds_are_points_in_microseconds_a_row_for_each_arm() -> None:
    arms = [RoundTimes("a", (1500.0, 2500.0)), RoundTimes("b", (4000.0,))]
    (axes,) = charts.distributions(arms, svg.WIDE).axes
    assert points(axes) == [(1.5, 0.0), (2.5, 0.0), (4.0, 1.0)]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "microseconds per unit, a point for each round"
    assert charts.distributions(arms, svg.NARROW).axes[0].get_xlabel() == "microseconds per unit"


@pytest.mark.parametrize(("slowest", "scale"), [(5000.0, "linear"), (5001.0, "log"), (100.0, "log")])
def test_rounds_of_arms_far_apart_stand_on_a_logarithmic_axis(slowest: float, scale: str) -> None:
    arms = [RoundTimes("a", (1000.0,) * 3), RoundTimes("b", (slowest,) * 3)]
    assert charts.distributions(arms, svg.WIDE).axes[0].get_xscale() == scale


def test_of_very_many_rounds_the_boxes_say_enough() -> None:
    def drawn(count: int) -> int:
        (axes,) = charts.distributions([RoundTimes("a", (1.0,) * count)], svg.WIDE).axes
        return len(axes.collections)

    assert (drawn(charts.MOST_POINTS), drawn(charts.MOST_POINTS + 1)) == (1, 0)


def test_memory_is_a_bar_for_each_arm() -> None:
    (axes,) = charts.memory(["a", "b"], [10.0, 20.0], svg.WIDE).axes
    assert [bar.get_width() for bar in axes.patches] == [10.0, 20.0]
    assert axes.get_xlabel() == "peak memory, MB"


def test_sizes_that_did_not_finish_are_marked_along_the_top_with_the_reason() -> None:
    sizes = (
        SizeResult(1, "1", 4000.0, 1, "ok"),
        SizeResult(2, "2", 2000.0, 1, "ok"),
        SizeResult(4, "4", None, None, "oom"),
    )
    (axes,) = charts.size_curve(SizeCurve("slab", sizes), svg.WIDE).axes
    assert line(axes.lines[0]) == ([0.0, 1.0], [4.0, 2.0])
    assert points(axes) == [(2.0, 4.0)]
    assert [text.get_text() for text in axes.texts] == ["oom"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylim()) == ("slab", (0.0, pytest.approx(4.6)))


def test_the_warm_up_of_iterations_is_dotted_and_only_the_timed_part_is_named() -> None:
    traces = [Trace("a", "A", (0.0, 1.0), (9.0, 8.0), (2.0, 3.0), (5.0, 5.0))]
    (axes,) = charts.iterations(traces, svg.WIDE).axes
    warm, own = axes.lines
    assert (warm.get_linestyle(), line(warm)) == (":", ([0.0, 1.0], [9.0, 8.0]))
    assert (own.get_label(), own.get_linestyle(), line(own)) == ("A", "-", ([2.0, 3.0], [5.0, 5.0]))
    assert warm.get_color() == own.get_color()


def test_spikes_are_marked_in_the_colour_of_their_arm_and_named_in_the_legend() -> None:
    found = (Spikes("evaluate, every 2", (1.0, 3.0), (9.0, 9.0)),)
    (axes,) = charts.iterations([Trace("a", "A", (), (), (0.0, 2.0), (5.0, 5.0), found)], svg.WIDE).axes
    assert points(axes) == [(1.0, 9.0), (3.0, 9.0)]
    assert axes.get_legend_handles_labels()[1] == ["A", "A: evaluate, every 2"]


SCHEMA = {
    "arm": pl.String,
    "round": pl.Int64,
    "used": pl.Boolean,
    "outcome": pl.String,
    "ns_per_unit": pl.Float64,
    "peak_bytes": pl.Int64,
    "folder": pl.String,
}


def trials(*rows: dict[str, Any]) -> pl.DataFrame:
    usual = {"round": 0, "used": True, "outcome": "ok", "ns_per_unit": 1.0, "peak_bytes": 10, "folder": ""}
    return pl.DataFrame([{**usual, **row} for row in rows], schema=SCHEMA)


def test_a_short_series_is_drawn_as_it_is_from_where_it_begins() -> None:
    assert thin(np.array([5.0, 7.0]), 3) == ((3.0, 4.0), (5.0, 7.0))
    assert thin(np.zeros(0), 3) == ((), ())
    assert len(thin(np.zeros(POINTS), 0)[0]) == POINTS


def test_a_long_series_is_drawn_as_medians_of_equal_bins() -> None:
    values = np.arange(3 * POINTS, dtype=float)
    values[1] = 1e6  # one outlier of a bin of three
    x, y = thin(values, 10)
    assert (len(x), len(y)) == (POINTS, POINTS)
    assert (x[0], y[0]) == (11.0, 2.0)
    assert (x[-1], y[-1]) == (10 + 3 * POINTS - 2, 3 * POINTS - 2)


def series(folder: Path, wall_ns: list[int], warm_ns: list[int] | None = None) -> str:
    folder.mkdir()
    arrays = {
        "start_ns": np.cumsum(wall_ns),
        "wall_ns": np.array(wall_ns),
        "flags": np.zeros(len(wall_ns), np.uint32),
    }
    if warm_ns is not None:
        arrays["warmup_wall_ns"] = np.array(warm_ns)
    write_iterations(folder, arrays)
    return str(folder)


def test_of_every_arm_the_last_round_that_counts_is_traced_after_its_warm_up(tmp_path: Path) -> None:
    last = series(tmp_path / "last", [2_000_000, 3_000_000], [9_000_000, 8_000_000])
    first = series(tmp_path / "first", [7_000_000])
    table = trials(
        {"arm": "a", "round": 1, "folder": last},
        {"arm": "a", "round": 0, "folder": first},
        {"arm": "a", "round": 2, "used": False, "folder": first},
        {"arm": "a", "round": 3, "outcome": "oom", "folder": first},
        {"arm": "b", "folder": first},
        {"arm": "c", "folder": str(tmp_path / "lost")},
    )
    a, b = last_traces(table, {"a": "A", "none": "N", "c": "C", "b": "B"})
    assert (a.arm, a.label) == ("a", "A")
    assert (a.warm_x, a.warm_ms) == ((0.0, 1.0), (9.0, 8.0))
    assert (a.timed_x, a.timed_ms) == ((2.0, 3.0), (2.0, 3.0))
    assert (b.label, b.warm_x, b.timed_x, b.timed_ms) == ("B", (), (0.0,), (7.0,))
    assert a.has_warm_up and not b.has_warm_up


def test_a_discarded_job_is_one_time_which_is_no_line(tmp_path: Path) -> None:
    folder = series(tmp_path / "job", [2_000_000], [9_000_000])
    (trace,) = last_traces(trials({"arm": "a", "folder": folder}), {"a": "A"})
    assert not trace.has_warm_up


def arrays_with(iterations: int, at: dict[int, dict[str, float]]) -> dict[str, np.ndarray]:
    """Iterations of 10 ms, and some with a phase that takes more ms; "" is time without a phase."""
    names = dict.fromkeys(name for own in at.values() for name in own)
    arrays = {"wall_ns": np.full(iterations, 10e6), "host_forward": np.full(iterations, 8e6)}
    arrays |= {f"host_{name}": np.zeros(iterations) for name in names if name and name != "forward"}
    for place, own in at.items():
        for name, ms in own.items():
            arrays["wall_ns"][place] += ms * 1e6
            if name:
                arrays[f"host_{name}"][place] += ms * 1e6
    return arrays


@pytest.mark.parametrize(
    ("at", "names"),
    [
        ({4: {"evaluate": 90}, 24: {"evaluate": 90}, 44: {"evaluate": 90}}, ["evaluate, every 20"]),
        ({7: {"evaluate": 90}, 9: {"evaluate": 90}, 44: {"evaluate": 90}}, ["evaluate, 3 of 60"]),
        ({59: {"gc": 60, "evaluate": 30, "save": 5}}, ["gc and evaluate, 1 of 60"]),
        ({3: {"": 50}, 9: {"forward": 80}}, ["forward, 1 of 60", "outside phases, 1 of 60"]),
        ({3: {"forward": 15}}, []),
    ],
)
def test_spikes_are_named_by_the_phases_that_take_longer_in_them_and_how_often(
    at: dict[int, dict[str, float]], names: list[str]
) -> None:
    assert [one.name for one in spikes(arrays_with(60, at), 0)] == names


def test_spikes_stand_where_they_were_however_long_the_series_is() -> None:
    (found,) = spikes(arrays_with(10 * POINTS, {999: {"evaluate": 90}}), 100)
    assert (found.x, found.ms) == ((1099.0,), (100.0,))


def test_rounds_are_those_that_count_in_the_order_of_the_plan() -> None:
    table = trials(
        {"arm": "b", "ns_per_unit": 4.0},
        {"arm": "a", "ns_per_unit": 1.0},
        {"arm": "a", "ns_per_unit": 2.0, "round": 1},
        {"arm": "a", "ns_per_unit": 9.0, "used": False},
        {"arm": "a", "ns_per_unit": 9.0, "outcome": "oom"},
    )
    found = round_times(table, {"a": "A", "b": "B", "c": "C"})
    assert found == [RoundTimes("A", (1.0, 2.0)), RoundTimes("B", (4.0,))]


def sized_arm(name: str, level: Any) -> Arm:
    return Arm(id=name, label=name, levels={"slab": level})


@pytest.mark.parametrize(
    ("level", "value", "text"),
    [(4, 4.0, "4"), (0.5, 0.5, "0.5"), ("auto", float("inf"), "auto"), (True, float("inf"), "True")],
)
def test_what_is_no_number_stands_behind_all_sizes(level: Any, value: float, text: str) -> None:
    (curve,) = size_curves(trials(), [sized_arm("a", level)], {"slab": {"a"}})
    assert curve.sizes == (SizeResult(value, text, None, None, "no rounds"),)


def test_a_ladder_has_the_medians_of_each_size_or_how_it_ended() -> None:
    table = trials(
        {"arm": "four", "ns_per_unit": 3.0, "peak_bytes": 10},
        {"arm": "four", "ns_per_unit": 1.0, "peak_bytes": 30},
        {"arm": "four", "ns_per_unit": 2.0, "peak_bytes": None},
        {"arm": "four", "ns_per_unit": 99.0, "used": False, "peak_bytes": 99},
        {"arm": "four", "ns_per_unit": 99.0, "outcome": "failed", "peak_bytes": 99},
        {"arm": "big", "outcome": "failed", "used": False},
        {"arm": "big", "outcome": "oom", "used": False},
        {"arm": "unused", "used": False},
    )
    arms = [sized_arm("big", 8), sized_arm("four", 4), sized_arm("unused", 16), sized_arm("other", 2)]
    (curve,) = size_curves(table, arms, {"slab": {"four", "big", "unused"}})
    assert (curve.toggle, curve.sizes) == (
        "slab",
        (
            SizeResult(4.0, "4", 2.0, 20, "ok"),
            SizeResult(8.0, "8", None, None, "oom"),
            SizeResult(16.0, "16", None, None, "no rounds"),
        ),
    )


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


def phased_arm(name: str, ns: float, paired_ns: float | None = None, **phases: float) -> ArmResult:
    shares = tuple(PhaseShare(phase, "host", time) for phase, time in phases.items())
    return ArmResult(name, 6, ns, 1, {"ok": 6}, phases=shares, name=name, id=name, paired_ns=paired_ns)


def phased_effect(name: str, ratio: float | None, verdict: Verdict | None = Verdict.FASTER) -> EffectResult:
    made = Effect(id=name, design="one_at_a_time", toggle=name, level="on", pairs=((name, "naive"),))
    spread = (None, None) if ratio is None else (ratio * 0.9, ratio * 1.1)
    return EffectResult(made, name, "naive", verdict, ratio, *spread)


NAIVE = phased_arm("naive", 100.0, forward=40.0, backward=30.0)


def phased(*arms: ArmResult, effects: tuple[EffectResult, ...] = ()) -> Comparison:
    return Comparison("demo", "pair", 0.01, Reference("naive", 100.0, 6), effects, arms, ())


def test_arms_are_broken_down_from_the_baseline_on_and_the_rest_is_what_no_phase_has() -> None:
    arms = (
        phased_arm("slow", 200.0, backward=190.0),
        phased_arm("unmarked", 5.0),
        phased_arm("fast", 50.0, forward=40.0),
        NAIVE,
    )
    effects = (phased_effect("slow", 2.0, Verdict.SLOWER), phased_effect("fast", 0.5))
    found = breakdown(phased(*arms, effects=effects))
    assert found is not None and found.phases == ("backward", "forward", REST)
    assert [bar.arm for bar in found.bars] == ["naive", "fast", "slow"], "as the tables have them"
    assert [bar.parts for bar in found.bars] == [(30.0, 40.0, 30.0), (0.0, 40.0, 10.0), (190.0, 0.0, 10.0)]


def test_a_sweep_without_phases_has_no_breakdown() -> None:
    assert breakdown(phased(phased_arm("naive", 100.0))) is None


def test_bars_are_as_long_as_effects_say_where_medians_drift() -> None:
    found = breakdown(phased(NAIVE, phased_arm("late", 200.0, paired_ns=50.0, forward=120.0)))
    assert found is not None
    assert found.bars[1].ns_per_unit == 50.0 and found.bars[1].parts == (30.0, 0.0, 20.0)


def test_a_phase_within_another_is_not_stacked_on_it() -> None:
    found = breakdown(phased(phased_arm("naive", 100.0, step=70.0, inner=40.0, data=25.0)))
    assert found is not None and found.phases == ("step", "data", REST)


def test_of_many_phases_the_short_ones_share_a_part() -> None:
    found = breakdown(phased(phased_arm("naive", 100.0, **{f"p{n}": 10.0 - n for n in range(9)})))
    assert found is not None and found.phases == ("p0", "p1", "p2", "p3", "p4", "p5", OTHERS, REST)
    assert found.bars[0].parts[-2:] == (4.0 + 3.0 + 2.0, pytest.approx(100.0 - 54.0))


@pytest.mark.parametrize("width", [svg.HALF, svg.NARROW])
def test_bars_end_at_the_time_of_their_arm_which_stands_next_to_them(width: int) -> None:
    found = breakdown(phased(NAIVE, phased_arm("fast", 50.0, forward=40.0)))
    assert found is not None
    axes = phases_chart.chart(found, width).axes[0]
    ends = {round(bar.get_y() + 0.31): bar.get_x() + bar.get_width() for bar in axes.patches}
    assert ends == {0: pytest.approx(100.0), 1: pytest.approx(50.0)}
    assert axes.get_xlabel() == "nanoseconds per pair"
    texts = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert texts == ["100 ns", "50 ns"]


def together(*ratios: float | None) -> Together:
    return Together(
        "x", phased_effect("all", 0.3), tuple(phased_effect(f"t{n}", ratio) for n, ratio in enumerate(ratios))
    )


def places(*ratios: float | None) -> list[tuple[float, float]]:
    return [(one.before, one.after) for one in waterfall_chart.steps(together(*ratios))]


def test_each_step_begins_where_the_one_before_it_ends() -> None:
    assert places(0.5, 0.8) == [(1.0, 0.5), (0.5, pytest.approx(0.4))]


def test_a_step_without_a_time_spans_what_the_measured_ones_leave() -> None:
    assert places(0.5, None, 0.75) == [
        (1.0, 0.5),
        (0.5, pytest.approx(0.4)),
        (pytest.approx(0.4), pytest.approx(0.3)),
    ]
    assert places(None, None) == [(1.0, 0.3)] * 2


def test_a_level_that_cannot_act_changes_nothing() -> None:
    found = together(0.5, None)
    inert = replace(found.steps[1], outcome="inert", verdict=None)
    steps = waterfall_chart.steps(replace(found, steps=(found.steps[0], inert)))
    assert (steps[1].before, steps[1].after) == (0.5, 0.5) and steps[1].result is inert


def test_unmeasured_steps_are_hatched_and_all_together_is_what_was_measured() -> None:
    axes = waterfall_chart.chart(together(0.5, None, 0.75), "naive", svg.HALF).axes[0]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, False, True, False]
    assert [bar.get_width() for bar in axes.patches[:2]] == [100.0, pytest.approx(30.0)]
    texts = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert texts == ["", "2.00x faster", "not measured", "1.33x faster", "3.33x faster [3.03 .. 3.70]"]
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "all together"


def test_a_phone_has_the_figures_below_the_names() -> None:
    axes = waterfall_chart.chart(together(0.5), "naive", svg.NARROW).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["naive", "+ t0=on\n2.00x faster", "all together\n3.33x [3.03 .. 3.70]"]


def test_a_whole_without_steps_is_drawn_alone() -> None:
    only = replace(together(), steps=())
    assert len(waterfall_chart.chart(only, "naive", svg.NARROW).axes[0].patches) == 2


MB = 10**6


def course(**arrays: Any) -> MemoryCourse:
    """Two iterations of 10 ms, whose tensors grow from nothing to 3 MB, of a process of 8 MB."""
    values: dict[str, Any] = {one.name: np.zeros(0, np.int64) for one in dataclasses.fields(MemoryCourse)}
    values |= {
        "allocated_ns": [0, 5_000_000],
        "allocated_bytes": [0, 3 * MB],
        "sampled_ns": [0, 20_000_000],
        "host_bytes": [8 * MB, 8 * MB],
        "reserved_bytes": [0, 0],
        "iteration_ns": [10_000_000, 20_000_000],
        "phase_names": np.array([], np.str_),
    }
    return MemoryCourse(**{name: np.array(value) for name, value in {**values, **arrays}.items()})


def phases(**spans: tuple[float, float]) -> dict[str, list]:
    """Phases by name, from and to in ms; two underscores stand for a phase inside another."""
    ends = [(start * 1e6, end * 1e6) for start, end in spans.values()]
    names_in = [name.replace("__", "/") for name in spans]
    return {
        "phase_names": names_in,
        "phase_start_ns": [a for a, _ in ends],
        "phase_end_ns": [b for _, b in ends],
    }


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of the lines that have a name, in ms and MB."""
    return {str(one.get_label()): [(float(x), float(y)) for x, y in one.get_xydata()] for one in axes.lines}


def names_in(axes: Axes) -> list[str]:
    return [one.get_text() for one in axes.texts]


def test_tensors_stand_above_the_process_in_ms_and_mb_with_a_line_where_each_iteration_ends() -> None:
    tensors, host = memory_chart(course(), WIDE).axes
    assert lines(tensors)["held by tensors"] == [(0, 0), (5, 3)]
    assert [one.get_xydata().tolist() for one in host.lines][-1] == [[0, 8], [20, 8]]
    ends = [one.get_xdata()[0] for one in tensors.lines if one.get_xdata()[0] == one.get_xdata()[-1]]
    assert ends == [10], "the last one ends where the picture does"
    assert (host.get_ylabel(), host.get_xlabel()) == ("host, MB", "ms")


def test_a_device_shows_what_its_allocator_holds_and_a_host_only_what_came_since() -> None:
    tensors, _ = memory_chart(course(reserved_bytes=[4 * MB, 5 * MB]), WIDE).axes
    assert lines(tensors)["reserved by the allocator"] == [(0, 4), (20, 5)]
    legend = tensors.get_legend()
    assert legend is not None and tensors.get_ylabel() == "MB"
    assert [one.get_text() for one in legend.get_texts()] == ["held by tensors", "reserved by the allocator"]
    tensors, _ = memory_chart(course(), WIDE).axes
    assert tensors.get_legend() is None and tensors.get_ylabel() == "MB, since the slice began"
    assert "reserved by the allocator" not in lines(tensors)


def test_the_outermost_phases_are_shaded_in_turns_and_the_long_ones_named_in_their_middle() -> None:
    spans = phases(forward=(0, 4), forward__inner=(1, 3), short=(4, 5), backward=(5, 20))
    tensors, host = memory_chart(course(**spans), WIDE).axes
    assert [(one.get_x(), one.get_x() + one.get_width()) for one in tensors.patches] == [
        (0, 4),
        (4, 5),
        (5, 20),
    ]
    first, second, third = (one.get_alpha() for one in tensors.patches)
    assert first == third != second and not host.patches
    assert names_in(tensors) == ["forward", "backward"], "a twentieth of the slice has no room for a name"
    assert [one.xy[0] for one in tensors.texts] == [2, 12.5]


@pytest.mark.parametrize(("width", "named"), [(WIDE, ["a", "b"]), (NARROW, ["b"])])
def test_a_phone_names_phases_three_times_as_long(width: int, named: list[str]) -> None:
    tensors, _ = memory_chart(course(**phases(a=(0, 1.2), b=(2, 5.6))), width).axes
    assert names_in(tensors) == named


def test_a_line_of_as_many_points_as_are_drawn_is_left_as_it_is() -> None:
    sizes = np.arange(MOST_POINTS + 1)
    assert len(thinned(sizes[:-1], sizes[:-1])[1]) == MOST_POINTS
    times, drawn = thinned(sizes * 10, sizes)
    assert len(drawn) == MOST_POINTS and drawn[-1] == MOST_POINTS and (times == drawn * 10).all()


def kept(folder: Path, label: str) -> Kept:
    folder.mkdir()
    made = Profile(
        tool="memory",
        workload="w",
        unit="step",
        arm=arm("a", label),
        slice="iterations 3-4",
        iterations=2,
        units=2.0,
        bare_ns=(1.0,),
    )
    return Kept(folder, made)


def test_only_profiles_that_recorded_memory_have_a_course_and_a_picture(tmp_path: Path) -> None:
    with_it, without = kept(tmp_path / "a", "amp=bf16"), kept(tmp_path / "b", "naive")
    write_course(with_it.folder, course())
    (found,) = arm_courses([without, with_it])
    assert (found.arm, found.slice) == ("amp=bf16", "iterations 3-4")
    assert found.course.allocated_bytes.tolist() == [0, 3 * MB]
    assert write_picture(without) is None and not (without.folder / PICTURE).exists()
    picture = write_picture(with_it)
    assert picture == with_it.folder / PICTURE
    assert 'aria-label="Memory of amp=bf16"' in picture.read_text()


STAND_INS = re.compile(r"#01010[1-7]")


def plain_chart(width: int, height: int = 300) -> Figure:
    figure, axes = canvas(width, height)
    axes.plot([1, 2], [3, 4], color=BLUE, clip_on=True)
    axes.set_title("a & b")
    return figure


def ids(text: str) -> list[str]:
    return re.findall(r'\bid="([^"]+)"', text)


def test_a_page_has_a_figure_for_a_desk_and_one_for_a_phone_with_names_of_their_own() -> None:
    text = drawn(plain_chart, "times", 'times of "a" & <b>')
    desk, phone = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert 'class="chart desk" role="img" aria-label="times of &#34;a&#34; &amp; &lt;b&gt;"' in desk
    assert f'viewBox="0 0 {WIDE} 300" style="max-width: {WIDE}px"' in desk
    assert f'viewBox="0 0 {NARROW} 300"' in phone and 'class="chart phone"' in phone
    assert all(name.startswith("times-desk-") for name in ids(desk)) and ids(desk)
    assert all(name.startswith("times-phone-") for name in ids(phone)) and ids(phone)
    used = re.findall(r'(?:url\(#|href="#)([^")]+)', desk)
    assert used and set(used) <= set(ids(desk)), "what a figure refers to stands in it"


def test_a_figure_higher_than_wide_says_so_to_the_page_and_one_among_others_is_narrow() -> None:
    text = one(lambda width: plain_chart(width, width + 1), "a", "a")
    assert f'class="chart any tall" role="img" aria-label="a" viewBox="0 0 {CELL} {CELL + 1}"' in text
    assert 'class="chart any"' in one(lambda width: plain_chart(width, width), "a", "a")


def test_words_stay_words_and_colours_are_those_of_the_page() -> None:
    text = one(plain_chart, "a", "a")
    assert ">a &amp; b</text>" in text and "'DejaVu Sans', Verdana, sans-serif" in text
    assert "var(--blue)" in text and "var(--soft)" in text and "var(--line)" in text
    assert not STAND_INS.search(text)
    assert "#ffffff" not in text, "nothing is white by night"
    assert not re.search(r"<metadata|<style|<!--", text)
    assert text == one(plain_chart, "a", "a"), "equal figures are equal to the byte"


def test_a_file_of_its_own_is_a_whole_picture_with_colours_by_day_and_by_night() -> None:
    text = alone(plain_chart, "a & b", width=500)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.attrib["aria-label"] == "a & b"
    size = (root.attrib["width"], root.attrib["height"], root.attrib["viewBox"])
    assert size == ("500", "300", "0 0 500 300")
    day, _, night = text.partition("@media (prefers-color-scheme: dark)")
    assert f"--blue: {DAY['--blue']}" in day and NIGHT["--blue"] not in day
    assert f"--blue: {NIGHT['--blue']}" in night and "background: var(--page)" in day


def test_axes_are_open_at_the_top_and_on_the_right() -> None:
    drawn_axes = []

    def kept(width: int) -> Figure:
        drawn_axes.extend((figure := plain_chart(width)).axes)
        return figure

    one(kept, "a", "a")
    spines = drawn_axes[0].spines
    assert {name: spines[name].get_visible() for name in spines} == {
        "left": True,
        "bottom": True,
        "top": False,
        "right": False,
    }
    assert drawn_axes[0].title.get_color() == INK and spines["left"].get_edgecolor() != LINE
