"""Axes of the report's pictures."""

from __future__ import annotations

import pytest

from pipelines.report.charts import factor_ticks, fold, row_height


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


def test_long_names_fold_after_commas_and_spaces_and_their_rows_grow():
    name = "label_free=on (with active_set, csc_layout, compile, warm_start)"
    assert fold(name).replace("<br>", "").replace(" ", "") == name.replace(" ", "")
    assert max(map(len, fold(name).split("<br>"))) <= 28
    assert fold("amp=bf16") == "amp=bf16"
    assert row_height(["amp=bf16", name], 30) > row_height(["amp=bf16"], 30)
