"""Options that the files of a sweep hold: their limits, choices, defaults and meanings."""

from __future__ import annotations

from declared import differing_options


def test_the_page_says_of_each_option_of_a_sweep_what_is_declared() -> None:
    assert differing_options("measure", "tracking", "report", "profile") == set()
