"""Text of a page goes on in the next line where it may, and nowhere else."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.report.html import breakable, unbroken


@pytest.mark.parametrize(
    "quantity",
    [
        "+37.5 %",
        "6.61x less",
        "2x more",
        "11.1 us",
        "299 MB",
        "1.5 GiB",
        "3 s",
        "-39.0 .. -23.7",
        "[0.621, 0.852]",
    ],
)
def test_a_quantity_stays_in_one_line(quantity: str) -> None:
    assert unbroken(
        f"compile=default ({quantity}), and more"
    ) == f"compile=default ({quantity}), and more".replace(quantity, quantity.replace(" ", "\xa0"))


@pytest.mark.parametrize("words", ["12 of 42 timing trials", "8 samples", "2 more, and 3 less", "a %, b"])
def test_words_behind_a_number_break_as_ever(words: str) -> None:
    assert unbroken(words) == words


def test_a_name_breaks_after_its_separators_and_stays_text() -> None:
    assert breakable("grad_checkpointing=on, <b> 3 us") == (
        "grad_<wbr>checkpointing=<wbr>on, &lt;b&gt; 3\xa0us"
    )
