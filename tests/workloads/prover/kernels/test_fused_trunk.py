"""The fused network: logits are those of the plain one, in its plain form and folded into the tables."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.native import compiler_here
from perfsweep.workloads.prover.data.generator import generate
from perfsweep.workloads.prover.data.knowledge import ATOMS, Vocabulary
from perfsweep.workloads.prover.kernels.fused_trunk import FusedPolicy
from perfsweep.workloads.prover.maths.policy import Policy, PolicyShape, make_weights

pytestmark = pytest.mark.skipif(compiler_here() is None, reason="no C++ compiler")
VOCABULARY = Vocabulary.of(generate("kinship", 3, 0, 0.2, 0))


@pytest.mark.parametrize("folded", [False, True])
def test_logits_of_states_that_nobody_keeps_are_those_of_the_plain_network(folded: bool) -> None:
    shape = PolicyShape(32, 32, 1)
    weights = make_weights(shape, VOCABULARY, seed=0)
    plain, fused = (kind(weights, shape, folded) for kind in (Policy, FusedPolicy))
    states = torch.randint(1, 4, (20, ATOMS, 1 + VOCABULARY.arity))
    owner = torch.arange(20) % 4
    keys, offset = plain.keys(plain.values(states[:4]))
    found, expected = (one.state_logits(states, keys, offset, owner) for one in (fused, plain))
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
