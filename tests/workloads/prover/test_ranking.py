"""Atoms and states as people read them, means over modes, walks, and what is kept of a job."""

from __future__ import annotations

import pytest

from perfsweep.workloads.prover.data.knowledge import Vocabulary
from perfsweep.workloads.prover.oracle import Resolver
from perfsweep.workloads.prover.ranking import Proof, atom_text, followed, state_text

NAMES = Vocabulary(("likes", "old"), ("ann", "bob"))


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ((1, 2, 3), "likes(bob,X1)"),
        ((2, 1, 0), "old(ann)"),
        *(((3 + kind, 0, 0), word) for kind, word in enumerate(("TRUE", "FALSE", "END"))),
    ],
)
def test_an_atom_is_written_with_names(atom: tuple[int, ...], text: str) -> None:
    assert atom_text(atom, NAMES) == text


def test_a_state_is_its_goals_and_a_proof_its_states() -> None:
    assert state_text(((1, 1, 3), (2, 3, 0)), NAMES) == "likes(ann,X1), old(X1)"
    assert str(Proof("q", True, ("a", "b", "TRUE"), -1.0)) == "a\nb\nTRUE"


def test_a_walk_goes_back_to_no_state_that_it_has_been_in() -> None:
    """q, r and s lead to one another, and each to something new too."""
    names = Vocabulary(("q", "r", "s", "t"), ("a", "b"))
    rules = [
        ((head, 1, 2), ((body, 1, 2),)) for head, body in ((1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (3, 4))
    ]
    resolver = Resolver([], rules, constants=2, predicates=4)
    walk = followed(resolver, (1, 1, 2), [0, 0, 0, 0])
    assert [state_text(state, names) for state in walk] == ["q(a,b)", "r(a,b)", "s(a,b)", "t(a,b)", "FALSE"]
