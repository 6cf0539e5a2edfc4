"""How numbers are put into words."""

from __future__ import annotations

import pytest

from pipelines.analysis.judge import EffectResult
from pipelines.report.charts import factor_ticks, folded, row_height
from pipelines.report.wording import bounds_text, compile_text, percent, warm_compile_text
from pipelines.store.schema import Effect


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (None, ""),
        (0.77, "-23.0 %"),
        (1.0, "+0.0 %"),
        (1.99, "+99.0 %"),
        (0.5, "2x less"),
        (1 / 271, "271x less"),
        (3.2, "3.2x more"),
    ],
)
def test_small_changes_are_percentages_and_large_ones_factors(ratio, words):
    assert percent(ratio) == words


def test_an_interval_takes_the_form_of_its_change_and_reads_from_small_to_large():
    assert bounds_text(0.77, 0.75, 0.79) == "-25.0 .. -21.0"
    assert bounds_text(1 / 250, 1 / 278, 1 / 225) == "225x .. 278x"
    assert bounds_text(3.0, 2.5, 3.5) == "2.5x .. 3.5x"
    assert bounds_text(0.9, None, 1.0) == ""


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
    assert folded(name).replace("<br>", "").replace(" ", "") == name.replace(" ", "")
    assert max(map(len, folded(name).split("<br>"))) <= 28
    assert folded("amp=bf16") == "amp=bf16"
    assert row_height(["amp=bf16", name], 30) > row_height(["amp=bf16"], 30)


@pytest.mark.parametrize(
    ("cold", "warm", "texts"),
    [
        (11.52, 2.14, ("11.5 s", "2.1 s")),
        (11.5, 0.0, ("11.5 s", "0.0 s")),
        (0.0, 0.0, ("", "")),
        (None, None, ("", "")),
    ],
)
def test_compiling_is_told_cold_and_warm(
    cold: float | None, warm: float | None, texts: tuple[str, str]
) -> None:
    effect = Effect(id="e", design="one_at_a_time", toggle="compile", level="default", pairs=(("a", "b"),))
    result = EffectResult(effect, "compile=default", "baseline", None, compile_s=cold, warm_compile_s=warm)
    assert (compile_text(result), warm_compile_text(result)) == texts
