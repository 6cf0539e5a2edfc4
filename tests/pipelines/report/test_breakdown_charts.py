"""Pictures that explain effects: phases of each arm, and winners on top of each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.combinations import Together
from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.phases import PhaseShare
from perfsweep.pipelines.report.pictures import phases_chart, svg, waterfall_chart
from perfsweep.pipelines.report.pictures.phases_chart import OTHERS, REST, breakdown
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect


def arm(name: str, ns: float, paired_ns: float | None = None, **phases: float) -> ArmResult:
    shares = tuple(PhaseShare(phase, "host", time) for phase, time in phases.items())
    return ArmResult(name, 6, ns, 1, {"ok": 6}, phases=shares, name=name, id=name, paired_ns=paired_ns)


def effect(name: str, ratio: float | None, verdict: Verdict | None = Verdict.FASTER) -> EffectResult:
    made = Effect(id=name, design="one_at_a_time", toggle=name, level="on", pairs=((name, "naive"),))
    spread = (None, None) if ratio is None else (ratio * 0.9, ratio * 1.1)
    return EffectResult(made, name, "naive", verdict, ratio, *spread)


NAIVE = arm("naive", 100.0, forward=40.0, backward=30.0)


def comparison(*arms: ArmResult, effects: tuple[EffectResult, ...] = ()) -> Comparison:
    return Comparison("demo", "pair", 0.01, Reference("naive", 100.0, 6), effects, arms, ())


def test_arms_are_broken_down_from_the_baseline_on_and_the_rest_is_what_no_phase_has() -> None:
    arms = (arm("slow", 200.0, backward=190.0), arm("unmarked", 5.0), arm("fast", 50.0, forward=40.0), NAIVE)
    effects = (effect("slow", 2.0, Verdict.SLOWER), effect("fast", 0.5))
    found = breakdown(comparison(*arms, effects=effects))
    assert found is not None and found.phases == ("backward", "forward", REST)
    assert [bar.arm for bar in found.bars] == ["naive", "fast", "slow"], "as the tables have them"
    assert [bar.parts for bar in found.bars] == [(30.0, 40.0, 30.0), (0.0, 40.0, 10.0), (190.0, 0.0, 10.0)]


def test_a_sweep_without_phases_has_no_breakdown() -> None:
    assert breakdown(comparison(arm("naive", 100.0))) is None


def test_bars_are_as_long_as_effects_say_where_medians_drift() -> None:
    found = breakdown(comparison(NAIVE, arm("late", 200.0, paired_ns=50.0, forward=120.0)))
    assert found is not None
    assert found.bars[1].ns_per_unit == 50.0 and found.bars[1].parts == (30.0, 0.0, 20.0)


def test_a_phase_within_another_is_not_stacked_on_it() -> None:
    found = breakdown(comparison(arm("naive", 100.0, step=70.0, inner=40.0, data=25.0)))
    assert found is not None and found.phases == ("step", "data", REST)


def test_of_many_phases_the_short_ones_share_a_part() -> None:
    found = breakdown(comparison(arm("naive", 100.0, **{f"p{n}": 10.0 - n for n in range(9)})))
    assert found is not None and found.phases == ("p0", "p1", "p2", "p3", "p4", "p5", OTHERS, REST)
    assert found.bars[0].parts[-2:] == (4.0 + 3.0 + 2.0, pytest.approx(100.0 - 54.0))


@pytest.mark.parametrize("width", [svg.HALF, svg.NARROW])
def test_bars_end_at_the_time_of_their_arm_which_stands_next_to_them(width: int) -> None:
    found = breakdown(comparison(NAIVE, arm("fast", 50.0, forward=40.0)))
    assert found is not None
    axes = phases_chart.chart(found, width).axes[0]
    ends = {round(bar.get_y() + 0.31): bar.get_x() + bar.get_width() for bar in axes.patches}
    assert ends == {0: pytest.approx(100.0), 1: pytest.approx(50.0)}
    assert axes.get_xlabel() == "nanoseconds per pair"
    texts = [label.get_text() for label in axes.child_axes[0].get_yticklabels()]
    assert texts == ["100 ns", "50 ns"]


def together(*ratios: float | None) -> Together:
    return Together("x", effect("all", 0.3), tuple(effect(f"t{n}", ratio) for n, ratio in enumerate(ratios)))


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
