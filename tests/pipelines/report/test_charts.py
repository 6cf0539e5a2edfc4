"""The report's pictures: their axes, the names of their rows, and the SVG that they become."""

from __future__ import annotations

import re
from functools import partial

import pytest

from pipelines.report import charts, svg
from pipelines.report.charts import factor_ticks, fold


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
