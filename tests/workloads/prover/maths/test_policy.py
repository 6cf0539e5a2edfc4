"""The network: sizes, what padding adds, and that both forms are one function."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.prover.data.knowledge import ATOMS, Vocabulary
from perfsweep.workloads.prover.maths import policy
from perfsweep.workloads.prover.maths.policy import (
    Policy,
    PolicyShape,
    constant_states,
    embed,
    macs,
    make_weights,
    slot_scale,
    term_tables,
    weights_digest,
)

NAMES = Vocabulary(("p", "q"), ("a", "b", "c"))
SHAPE = PolicyShape(embedding=4, width=5, layers=2)


@pytest.fixture(scope="module")
def weights():
    return make_weights(SHAPE, NAMES, seed=1)


def test_sizes_follow_vocabulary_and_shape() -> None:
    made = make_weights(SHAPE, NAMES, seed=1)
    shapes = {name: tuple(tensor.shape) for name, tensor in made.items()}
    entities = 1 + 3 + 2 * ATOMS
    assert shapes["P"] == (1 + 2 + 3, 4)
    assert shapes["U"] == shapes["V"] == (entities, 4)
    assert shapes["trunk.0.weight"] == (5, 4)
    assert shapes["trunk.1.weight"] == shapes["trunk.2.weight"] == shapes["hidden.weight"] == (5, 5)
    assert "trunk.3.weight" not in shapes
    assert shapes["out.weight"] == (4, 5)
    assert not any(made[name][0].any() for name in ("P", "U", "V"))
    assert (made["trunk.1.scale"] == 1).all() and not made["trunk.1.shift"].any()


@pytest.mark.parametrize(("arity", "tables"), [(1, ["U"]), (2, ["U", "V"]), (4, ["U", "V", "V2", "V3"])])
def test_every_argument_has_a_table(arity: int, tables: list[str]) -> None:
    made = make_weights(SHAPE, Vocabulary(("p",), ("a",), arity), seed=0)
    assert term_tables(made) == tables


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


def some_states() -> torch.Tensor:
    states = torch.zeros(3, ATOMS, 3, dtype=torch.int32)
    states[0, 0] = torch.tensor([1, 1, 2])
    states[1, :2] = torch.tensor([[2, 3, 4], [1, 4, 1]])
    states[2, 0] = torch.tensor([3, 0, 0])
    return states


def test_an_embedding_halves_from_slot_to_slot(weights) -> None:
    P, U, V = weights["P"], weights["U"], weights["V"]
    found = embed(weights, some_states(), SHAPE.decay)
    assert torch.allclose(found[0], P[1] + U[1] + V[2])
    assert torch.allclose(found[1], P[2] + U[3] + V[4] + (P[1] + U[4] + V[1]) / 2)
    assert torch.allclose(found[2], P[3])
    assert slot_scale(4, 0.5, P).tolist() == [1, 0.5, 0.25, 0.125]


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


@pytest.mark.parametrize(("folded", "products"), [(False, 1), (True, 0)])
def test_only_the_plain_form_multiplies_on_the_way_into_the_first_layer(
    weights, monkeypatch: pytest.MonkeyPatch, folded: bool, products: int
) -> None:
    form, calls = Policy(weights, SHAPE, folded=folded), []
    multiply = policy.F.linear
    monkeypatch.setattr(policy.F, "linear", lambda *args: calls.append(args) or multiply(*args))
    form.first(some_states())
    assert len(calls) == products


def test_a_logit_is_a_product_of_values_over_the_root_of_their_width(weights) -> None:
    plain = Policy(weights, SHAPE)
    values = plain.values(some_states())
    assert torch.allclose(
        logits(plain, some_states()), values @ values[0] / math.sqrt(4), rtol=1e-4, atol=1e-6
    )


def test_sixteen_bits_are_those_of_products_alone(weights) -> None:
    low, plain = Policy(weights, SHAPE, low=True), Policy(weights, SHAPE)
    assert {tensor.dtype for tensor in low.products.values()} == {torch.bfloat16}
    assert low.values(some_states()).dtype == torch.float32
    assert not torch.equal(low.values(some_states()), plain.values(some_states()))
    assert torch.allclose(low.values(some_states()), plain.values(some_states()), atol=0.1)


def test_true_false_and_end_stand_alone() -> None:
    states = constant_states(NAMES)
    assert states.shape == (3, ATOMS, 3)
    assert states[:, 0].tolist() == [[3, 0, 0], [4, 0, 0], [5, 0, 0]]
    assert not states[:, 1:].any()
