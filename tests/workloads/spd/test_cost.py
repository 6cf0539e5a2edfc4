"""The formula of an iteration's cost, added up by hand for two modules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from perfsweep.workloads.spd.maths.importance import TransformerImportance
from perfsweep.workloads.spd.maths.sites import Site, one_by_one
from perfsweep.workloads.spd.presets import LossSpec, Recipe, TargetSpec
from perfsweep.workloads.spd.specs import TransformerSpec
from perfsweep.workloads.spd.workload import flops_per_position, macs

SITES = (Site("a", "linear", 3, 5, 2, 0), Site("b", "linear", 4, 7, 6, 1))
LM = TargetSpec(layers=2, width=8, vocab=11)
RECIPE = Recipe(
    target=LM,
    modules=(),
    importance="shared_mlp",
    hidden=(9,),
    losses=(LossSpec("faithfulness", 1.0), LossSpec("stochastic", 1.0), LossSpec("pgd", 1.0, steps=3)),
    batch=4,
    seq=10,
    steps=1,
    lr=1.0,
)
P = 3 * 5 + 4 * 7
Q = 2 * (3 + 5) + 6 * (4 + 7)
HEAD, ATTENTION = 8 * 11, 2 * 10 * 8
IMPORTANCE = 3 * 9 + 9 * 2 + 4 * 9 + 9 * 6
DELTAS = 3 * (3 * 5 * 2 + 4 * 7 * 6)


@pytest.mark.parametrize(("folds", "E"), [(True, 0), (False, P)])
def test_terms_of_a_position(folds: bool, E: int) -> None:
    unit = macs(SITES, LM, RECIPE, folds)
    assert unit.target == P + HEAD + ATTENTION
    assert unit.importance == IMPORTANCE
    assert unit.forward == unit.target + Q + E
    assert unit.backward == P + 2 * Q + 2 * E + HEAD + 2 * ATTENTION
    assert unit.inner == P + Q + E + HEAD + 2 * ATTENTION
    assert unit.deltas == DELTAS


def test_a_transformer_of_importances_costs_its_weights_and_its_attention() -> None:
    spec, hidden = TransformerSpec(12, 3, 2), (9, 7)
    made = TransformerImportance(SITES, spec, hidden, one_by_one(SITES), torch.Generator().manual_seed(0))
    weights = sum(parameter.numel() for parameter in made.parameters() if parameter.dim() == 2)
    recipe = replace(RECIPE, importance=made.kind, hidden=hidden, transformer=spec)
    assert macs(SITES, LM, recipe, folds=True).importance == weights + 3 * 2 * 10 * 12


def test_an_iteration_is_the_sum_of_its_passes() -> None:
    unit = macs(SITES, LM, RECIPE, folds=False)
    outer, inner = 2, 3  # a stochastic pass and that after the search; three steps of the search
    each = unit.target + 3 * IMPORTANCE
    each += outer * (unit.forward + unit.backward) + inner * (unit.forward + unit.inner)
    assert flops_per_position(SITES, LM, RECIPE, folds=False) == pytest.approx(2 * (each + DELTAS / 40))
    larger = replace(RECIPE, batch=8)
    assert flops_per_position(SITES, LM, larger, folds=False) == pytest.approx(2 * (each + DELTAS / 80))
