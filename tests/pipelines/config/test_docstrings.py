"""Docstrings as Markdown."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.config.training_reference import (
    code,
    described,
    one_line,
    prose,
    raised,
    signature,
    summary,
    table,
)


class Own:
    """Sort ``things``, one
    after the other.

    A second paragraph | with a bar.

    Attributes
    ----------
    first, second : what
        they are: both
    third : alone
    not one

    Raises
    ------
    ValueError
        They are none,
        or too many.
    KeyError
    """

    def act(self, strength: float, other: int = 3) -> None:
        """Act."""


def test_each_name_of_a_section_has_its_words() -> None:
    both = "what they are: both"
    assert described(Own) == {"first": both, "second": both, "third": "alone"}
    assert described(Own, "Parameters") == {} == described(Own.act)


def test_errors_have_the_reason_why_they_are_raised() -> None:
    assert raised(Own) == {"ValueError": "They are none, or too many."}
    assert raised(Own.act) == {}


def test_prose_ends_with_the_first_section_and_a_summary_with_its_paragraph() -> None:
    assert prose(Own) == "Sort `things`, one after the other.\n\nA second paragraph \\| with a bar."
    assert summary(Own) == "Sort `things`, one after the other."
    assert (prose(object()), summary(type("Bare", (), {}))) != (None, None)
    assert summary(type("Bare", (), {})) == ""


def test_arguments_are_named_without_types_and_without_the_instance() -> None:
    assert signature(Own.act) == "(strength, other)"
    assert signature(Own) == ""


def test_a_table_has_a_rule_below_its_headings() -> None:
    assert table(("a", "b"), [("1", "2"), ("3", "4")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n"


@pytest.mark.parametrize(("text", "line"), [("a\n  b", "a b"), ("``x``", "`x`"), ("a|b", "a\\|b")])
def test_a_cell_is_one_line(text: str, line: str) -> None:
    assert one_line(text) == line
    assert code("a|b") == "`a\\|b`"
