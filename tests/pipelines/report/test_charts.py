"""The report's pictures: their axes, the names of their rows, and the SVG that they become."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pipelines.analysis.judge import EffectResult
from pipelines.analysis.scaling import Scaling, Work
from pipelines.report import charts, svg
from pipelines.report.chart_data import Trace, scaled_effects
from pipelines.report.charts import factor_ticks, fold
from pipelines.statistics.verdicts import Verdict
from pipelines.store.records import Effect


@pytest.mark.parametrize(
    ("low", "high", "texts"),
    [
        (0.4, 1.3, ["2x less", "1.5x less", "1.2x less", "same", "1.2x more"]),
        (
            0.003,
            1.1,
            ["200x less", "100x less", "50x less", "20x less", "10x less", "5x less", "2x less", "same"],
        ),
        (1e-3, 1e3, ["1000x less", "100x less", "10x less", "same", "10x more", "100x more", "1000x more"]),
    ],
)
def test_an_axis_of_factors_has_ticks_whatever_its_range(low, high, texts):
    assert list(factor_ticks(low, high).values()) == texts


def test_a_narrow_axis_has_fewer_ticks():
    assert list(factor_ticks(1e-3, 1e3, most=3).values()) == ["100x less", "same", "100x more"]


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
    heights = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert heights.keys() == {"80%", "50%", "95%", "90%"}
    assert heights["80%"] < 0 < heights["95%"], "names of strong scaling stand below their points"


def test_a_discarded_job_does_not_stretch_the_axis_of_iterations() -> None:
    trace = Trace("a", "a", (0.0,), (600.0,), (1.0, 2.0), (4.0, 5.0))
    assert charts.iterations([trace], svg.WIDE).axes[0].get_ylim()[1] < 10


def test_ranks_whose_time_is_held_back_are_not_drawn():
    told = scaled("ddp", 2, Work.STRONG, 0.8, Verdict.UNDECIDED)
    held = scaled("ddp", 4, Work.STRONG, 0.5, Verdict.HELD_BACK)
    assert scaled_effects([told, held]) == [told]
