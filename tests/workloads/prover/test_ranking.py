"""Atoms and states as people read them, and means over modes."""

from __future__ import annotations

import pytest

from workloads.prover.data.knowledge import Vocabulary
from workloads.prover.ranking import Proof, atom_text, averaged, state_text

NAMES = Vocabulary(("likes", "old"), ("ann", "bob"))


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ((1, 1, 2), "likes(ann,bob)"),
        ((1, 2, 3), "likes(bob,X1)"),
        ((1, 4, 1), "likes(X2,ann)"),
        ((2, 1, 0), "old(ann)"),
        ((3, 0, 0), "TRUE"),
        ((4, 0, 0), "FALSE"),
        ((5, 0, 0), "END"),
    ],
)
def test_an_atom_is_written_with_names(atom: tuple[int, ...], text: str) -> None:
    assert atom_text(atom, NAMES) == text


def test_a_state_is_its_goals_and_a_proof_its_states() -> None:
    assert state_text(((1, 1, 3), (2, 3, 0)), NAMES) == "likes(ann,X1), old(X1)"
    assert str(Proof("q", True, ("a", "b", "TRUE"), -1.0)) == "a\nb\nTRUE"


def test_metrics_are_averaged_each_by_itself() -> None:
    assert averaged([{"mrr": 0.25, "hits1": 0.0}, {"mrr": 0.75, "hits1": 1.0}]) == {"mrr": 0.5, "hits1": 0.5}
