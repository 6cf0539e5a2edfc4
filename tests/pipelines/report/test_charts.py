"""The report's pictures: their axes, the names of their rows, and the SVG that they become."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest

from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.pictures import charts, svg
from perfsweep.pipelines.report.pictures.chart_data import (
    RoundTimes,
    SizeCurve,
    SizeResult,
    Spikes,
    Trace,
    scaled_effects,
)
from perfsweep.pipelines.report.pictures.charts import fold
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect


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
