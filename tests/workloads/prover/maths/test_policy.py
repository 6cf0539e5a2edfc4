"""The network: sizes, what padding adds, and that both forms are one function."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.prover.data.knowledge import ATOMS, Vocabulary
from perfsweep.workloads.prover.maths import policy
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, macs, make_weights, weights_digest

NAMES = Vocabulary(("p", "q"), ("a", "b", "c"))
SHAPE = PolicyShape(embedding=4, width=5, layers=2)


@pytest.fixture(scope="module")
def weights():
    return make_weights(SHAPE, NAMES, seed=1)


def some_states() -> torch.Tensor:
    states = torch.zeros(3, ATOMS, 3, dtype=torch.int32)
    states[0, 0] = torch.tensor([1, 1, 2])
    states[1, :2] = torch.tensor([[2, 3, 4], [1, 4, 1]])
    states[2, 0] = torch.tensor([3, 0, 0])
    return states


def logits(form: Policy, states: torch.Tensor) -> torch.Tensor:
    """Of each state after the first one."""
    keys, offset = form.keys(form.values(states[:1]))
    return form.dots(form.values(states), keys, offset, torch.zeros(len(states), dtype=torch.int64))


def test_the_folded_form_is_the_same_function(weights, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, folded = Policy(weights, SHAPE), Policy(weights, SHAPE, folded=True)
    assert (plain.width, folded.width) == (4, 5)
    assert torch.allclose(plain.first(some_states()), folded.first(some_states()))
    assert torch.allclose(logits(plain, some_states()), logits(folded, some_states()), rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(policy, "CHUNK", 2)
    keys, offset = plain.keys(plain.values(some_states()))
    owner = torch.tensor([2, 0, 1])
    found = plain.state_logits(some_states(), keys, offset, owner)
    assert torch.allclose(found, plain.dots(plain.values(some_states()), keys, offset, owner))
    assert len(plain.state_logits(some_states()[:0], keys, offset, owner[:0])) == 0


def test_a_gain_scales_the_last_layer_alone_and_seeds_draw_others() -> None:
    one, louder = (make_weights(SHAPE, NAMES, 1, gain) for gain in (1.0, 3.0))
    assert torch.allclose(louder["out.weight"], 3 * one["out.weight"])
    assert torch.allclose(louder["out.bias"], 3 * one["out.bias"])
    assert all(torch.equal(one[name], louder[name]) for name in one if not name.startswith("out"))
    digests = {weights_digest(made) for made in (one, louder, make_weights(SHAPE, NAMES, 2))}
    assert len(digests) == 3
    assert weights_digest(make_weights(SHAPE, NAMES, 1)) in digests
    state = torch.get_rng_state()
    make_weights(SHAPE, NAMES, 3)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("folded", "expected"), [(False, 3 * 25 + 2 * 4 * 5), (True, 3 * 25)])
def test_multiply_adds_of_a_state(folded: bool, expected: int) -> None:
    assert macs(SHAPE, folded) == expected


def test_true_false_and_end_are_atoms_of_the_three_predicates_after_the_last() -> None:
    nothing = [[0] * 4] * (ATOMS - 1)
    three = Vocabulary(("p", "q"), ("a",), arity=3)
    assert policy.constant_states(three).tolist() == [[[kind, 0, 0, 0], *nothing] for kind in (3, 4, 5)]
