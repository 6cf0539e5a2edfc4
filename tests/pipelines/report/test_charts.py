"""The pictures of a report: their rows, axes and names, the series they show, and the SVG they become."""

from __future__ import annotations

import dataclasses
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from planned_sweeps import arm

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.iteration_series import PhaseShare
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.report import svg
from perfsweep.pipelines.report.arm_charts import (
    MOST_POINTS,
    PICTURE,
    REST,
    Spikes,
    Trace,
    breakdown,
    iterations_chart,
    last_traces,
    memory_chart,
    phases_chart,
    spikes,
    thinned,
    write_memory_picture,
)
from perfsweep.pipelines.report.effects_chart import chart, effect_rows, interaction, limits
from perfsweep.pipelines.report.svg import BLUE, DAY, NARROW, NIGHT, WIDE, alone, canvas, drawn, exported
from perfsweep.pipelines.report.trade_off import SizeCurve, SizeResult, size_curve, size_curves
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, Profile, write_course
from perfsweep.pipelines.store.records import Arm, Effect, write_iterations
from perfsweep.workloads.api import Parity


def points(axes) -> list[tuple[float, float]]:
    """Points of the last scatter that was drawn."""
    return [(round(float(x), 6), round(float(y), 6)) for x, y in axes.collections[-1].get_offsets()]


def line(one) -> tuple[list[float], list[float]]:
    return [float(x) for x in one.get_xdata()], [round(float(y), 6) for y in one.get_ydata()]


def words(figure: Figure) -> dict[str, Any]:
    """What is around the first axes of a figure: its labels, the names of its ticks, and its legend."""
    axes, *_ = figure.axes
    ticks = {"ticks": axes.get_xticklabels(), "rows": axes.get_yticklabels()}
    return {
        "labels": (axes.get_xlabel(), axes.get_ylabel()),
        **{name: [one.get_text() for one in own] for name, own in ticks.items()},
        "legend": [text.get_text() for one in figure.legends for text in one.get_texts()],
    }


CORNERS = Corners(("a", "b"), ("off", "low"), ("on", "high"), 0.5, 0.8, 0.3)


def test_an_interaction_is_a_line_for_each_level_of_the_second_and_one_of_what_was_to_be_expected() -> None:
    figure = interaction(CORNERS, svg.WIDE)
    (axes,) = figure.axes
    assert {one.get_label(): line(one)[1] for one in axes.lines} == {
        "b=low": [1.0, 0.5],
        "b=high": [0.8, 0.3],
        "if neither touched the other": [0.8, 0.4],
    }
    found = words(figure)
    assert (found["labels"], found["ticks"]) == (("", "time against neither"), ["a=off", "a=on"])
    assert found["legend"] == ["b=low", "b=high", "if neither touched the other"]
    assert [one.get_linestyle() for one in axes.lines] == ["-", "-", ":"]


def test_iterations_are_a_line_for_each_arm_after_its_dotted_warm_up_with_spikes_named_in_the_legend() -> (
    None
):
    marked = (Spikes("gc, 1 of 60", (3.0,), (9.0,)), Spikes("save, every 5", (4.0, 9.0), (7.0, 8.0)))
    traces = (
        Trace("a", "A", (0.0, 1.0), (5.0, 4.0), (2.0, 3.0), (2.0, 2.5), marked),
        Trace("b", "B", (0.0,), (5.0,), (1.0, 2.0), (1.0, 1.5)),
    )
    figure = iterations_chart(traces, svg.WIDE)
    (axes,) = figure.axes
    assert [(line(one), one.get_linestyle()) for one in axes.lines] == [
        (([0.0, 1.0], [5.0, 4.0]), ":"),
        (([2.0, 3.0], [2.0, 2.5]), "-"),
        (([1.0, 2.0], [1.0, 1.5]), "-"),
    ]
    assert [one.get_offsets().tolist() for one in axes.collections] == [[[3, 9]], [[4, 7], [9, 8]]]
    found = words(figure)
    assert found["labels"] == ("iteration, from the start of the trial", "ms")
    assert found["legend"] == ["A", "A: gc, 1 of 60", "A: save, every 5", "B"]
    assert (axes.get_xscale(), axes.get_yscale(), list(figure.bbox.size)) == ("linear", "log", [WIDE, 420])


def test_sizes_that_did_not_finish_are_marked_along_the_top_with_the_reason() -> None:
    sizes = (
        SizeResult(1, "1", 4000.0, 1, "ok"),
        SizeResult(2, "2", 2000.0, 1, "ok"),
        SizeResult(4, "4", None, None, "oom"),
    )
    (axes,) = size_curve(SizeCurve("slab", sizes), svg.WIDE).axes
    assert line(axes.lines[0]) == ([0.0, 1.0], [4.0, 2.0])
    assert points(axes) == [(2.0, 4.0)]
    assert [text.get_text() for text in axes.texts] == ["oom"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("slab", "microseconds per unit")
    assert axes.get_ylim() == (0.0, pytest.approx(4.6))


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
        ({59: {"gc": 60, "evaluate": 30, "save": 5}}, ["gc and evaluate, 1 of 60"]),
        ({3: {"": 50}, 9: {"forward": 80}}, ["forward, 1 of 60", "outside phases, 1 of 60"]),
    ],
)
def test_spikes_are_named_by_the_phases_that_take_longer_in_them_and_how_often(
    at: dict[int, dict[str, float]], names: list[str]
) -> None:
    assert [one.name for one in spikes(arrays_with(60, at), 0)] == names


def sized_arm(name: str, level: Any) -> Arm:
    return Arm(id=name, label=name, levels={"slab": level})


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


def test_each_point_has_the_speed_of_its_row_in_the_colour_and_the_form_of_what_to_do() -> None:
    rows = effect_rows(comparison(*SOME))
    figure = chart(rows, 0.05, svg.WIDE)
    axes = figure.axes[0]
    assert words(figure) == {
        "labels": ("speed against the baseline, with its 95 % interval", ""),
        "ticks": ["2x\nslower", "same", "2x\nfaster", "3x\nfaster", "5x\nfaster", "10x\nfaster"],
        "rows": [row.name for row in rows],
        "legend": [],
    }
    (band,), (same,) = axes.patches, axes.lines
    assert band.get_x() == 1 / 1.05 and band.get_x() + band.get_width() == pytest.approx(1 / 0.95)
    assert list(same.get_xdata()) == [1, 1] and same.get_linewidth() > 0
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
    narrow = words(chart(rows, 0.05, NARROW))
    assert narrow["labels"] == ("speed, 95 % interval", "")
    assert narrow["rows"] == [
        *("TURN ON", "faster=on\n4.00x [3.64 .. 4.40]", "fast=on\n2.00x [1.82 .. 2.20]"),
        *("LEAVE OFF", "slow=on\n1.60x [1.45 .. 1.76]", "CHANGES RESULTS", "other=on\ndifferent"),
        *("NOT DECIDED", "open=on\n1.020x [0.928 .. 1.122]"),
    ]


def test_an_interval_that_reaches_far_does_not_squeeze_the_others() -> None:
    low, high = limits([FAST, effect("wild", Verdict.UNDECIDED, 1.0, 1000.0)], 0.01)
    assert 1 / 4 < low < 1 and 2 < high < 10
    rows = effect_rows(comparison(FAST, effect("wild", Verdict.UNDECIDED, 1.0, 1000.0)))
    ends = [float(one.get_offsets()[0][0]) for one in chart(rows, 0.01, svg.WIDE).axes[0].collections]
    assert min(ends) >= 0 and len(ends) == 6, "two intervals, two points, and an arrow at each end of one"


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
    figure, narrow = phases_chart(found, WIDE), phases_chart(found, NARROW)
    legend = ["backward", "forward", REST]
    rows = ["naive", "fast", "slow"]
    told = words(figure)
    assert (told["labels"], told["rows"], told["legend"]) == (("nanoseconds per pair", ""), rows, legend)
    ends = [[bar.get_x() + bar.get_width() for bar in part] for part in figure.axes[0].containers]
    assert ends == [[30, 0, 190], [70, 40, 190], [100, 50, 200]], "each part goes on where the last one ends"
    assert narrow.bbox.height - figure.bbox.height == pytest.approx(20), "two rows of legend, in place of one"


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


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of the lines that have a name, in ms and MB."""
    return {str(one.get_label()): [(float(x), float(y)) for x, y in one.get_xydata()] for one in axes.lines}


def test_tensors_stand_above_the_process_in_ms_and_mb_with_a_line_where_each_iteration_ends() -> None:
    phases = {"phase_names": ["step", "step/in"], "phase_start_ns": [0, 0], "phase_end_ns": [10**7, 10**6]}
    figure = memory_chart(course(**phases), WIDE)
    tensors, host = figure.axes
    assert [(one.get_text(), one.xy[0]) for one in tensors.texts] == [("step", 5)], (
        "the outermost, in its middle"
    )
    assert list(figure.bbox.size) == [WIDE, 420] and tensors.get_ylabel() == "MB, since the slice began"
    assert lines(tensors)["held by tensors"] == [(0, 0), (5, 3)]
    assert [one.get_xydata().tolist() for one in host.lines][-1] == [[0, 8], [20, 8]]
    ends = [one.get_xdata()[0] for one in tensors.lines if one.get_xdata()[0] == one.get_xdata()[-1]]
    assert ends == [10], "the last one ends where the picture does"
    assert (host.get_ylabel(), host.get_xlabel()) == ("host, MB", "ms")


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
    assert write_memory_picture(without) is None and not (without.folder / PICTURE).exists()
    picture = write_memory_picture(with_it)
    assert picture == with_it.folder / PICTURE
    assert 'aria-label="Memory of amp=bf16"' in picture.read_text()


def test_thinning_a_line_keeps_its_peak() -> None:
    sizes = np.zeros(50_000, np.int64)
    sizes[31_337] = 7
    times, drawn = thinned(np.arange(50_000), sizes)
    assert len(drawn) == MOST_POINTS and drawn.max() == 7
    assert times[drawn.argmax()] == 31_337 and (np.diff(times) > 0).all()


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
    assert ">a &amp; b</text>" in desk and "'DejaVu Sans', Verdana, sans-serif" in desk, "words stay words"
    assert "var(--blue)" in desk and "var(--soft)" in desk and "var(--line)" in desk
    assert not re.search(r"#01010[1-7]|#ffffff", text), "no stand-in is left, and nothing is white by night"
    assert not re.search(r"<metadata|<style|<!--", text)
    assert text == drawn(plain_chart, "times", 'times of "a" & <b>'), "equal figures are equal to the byte"


def test_an_exported_picture_has_the_colours_of_the_day() -> None:
    pixels = image.imread(BytesIO(exported(plain_chart, "png")))[:, :, :3].reshape(-1, 3)
    for name in ("--blue", "--page"):
        assert (np.abs(pixels - to_rgba(DAY[name])[:3]).max(axis=1) < 0.01).any(), name


def test_a_file_of_its_own_is_a_whole_picture_with_colours_by_day_and_by_night() -> None:
    text = alone(plain_chart, "a & b")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.attrib["aria-label"] == "a & b"
    size = (root.attrib["width"], root.attrib["height"], root.attrib["viewBox"])
    assert size == ("860", "300", "0 0 860 300")
    day, _, night = text.partition("@media (prefers-color-scheme: dark)")
    assert f"--blue: {DAY['--blue']}" in day and NIGHT["--blue"] not in day
    assert f"--blue: {NIGHT['--blue']}" in night and "background: var(--page)" in day
