"""Bisection: the first commit with a property in few looks, around commits that say nothing."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.versions.bisection import Bisection, Mark


def bisected(length: int, first: int, silent: frozenset[int] = frozenset()) -> tuple[range, list[int]]:
    """Bisect a line of which all from `first` on have the property; suspects at the end, places looked at."""
    state, looked = Bisection(length, {}), []
    while (place := state.next) is not None:
        looked.append(place)
        has = Mark.WITH if place >= first else Mark.WITHOUT
        state = state.marked(place, Mark.SKIPPED if place in silent else has)
    return state.suspects, looked


@pytest.mark.parametrize("length", [1, 2, 3, 16, 100])
def test_every_commit_is_found_in_as_many_looks_as_halving_needs(length: int) -> None:
    for first in range(length):
        suspects, looked = bisected(length, first)
        assert list(suspects) == [first]
        assert len(looked) == len(set(looked)) <= math.ceil(math.log2(length))


def test_the_answer_always_lies_among_the_suspects_and_only_silent_commits_widen_it() -> None:
    silent = frozenset({5, 6, 7, 12})
    for first in range(16):
        suspects, looked = bisected(16, first, silent)
        assert first in suspects and len(looked) <= 8
        assert set(suspects) - silent <= {max(suspects)}
        assert len(suspects) == 1 or silent.intersection(suspects)
