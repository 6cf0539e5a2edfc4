"""What has to hold for any decomposition, by formulas that import nothing from the code they check."""

# Drives `patching` of perfsweep.workloads.spd.variants.
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from perfsweep.workloads.spd.maths.layers import Conv1D
from perfsweep.workloads.spd.maths.masked_products import Call, SiteMask, fused, two_step
from perfsweep.workloads.spd.maths.sites import Operands, find_sites
from perfsweep.workloads.spd.maths.target import Target
from perfsweep.workloads.spd.oracle import ci_errors

WIDTH, COUNT, VOCAB = 6, 9, 11


class Mixed(Target):
    """One module of each kind, so that every way of storing a weight is decomposed."""

    stages = ("linear", "conv", "identity")

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.conv = Conv1D(WIDTH, WIDTH)
        self.identity = nn.Identity()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(generator=generator)
        self.double().eval().requires_grad_(False)

    def enter(self, batch: torch.Tensor) -> torch.Tensor:
        return self.embed(batch)


def dense(target: Mixed, name: str) -> torch.Tensor:
    """W [out, in] of a module, by hand."""
    weights = {
        "embed": target.embed.weight.T,
        "linear": target.linear.weight,
        "conv": target.conv.weight.T,
        "identity": torch.eye(WIDTH, dtype=torch.float64),
    }
    return weights[name]


@pytest.fixture
def patched(arm_of):
    """An arm of a target, and its sites."""

    def make(kind: str, target: Mixed):
        sites = find_sites(target, [("*", COUNT)], identity_width=WIDTH)
        levels = {"patching": "wrapper", "delta": "folded"} if kind == "folded" else {"patching": kind}
        config = {"modules": ["*"], "importance": "mlp", "batch_size": 2, "seq_len": 5}
        return arm_of(target, sites, TOKENS.numpy().astype("uint16"), config, **levels), sites

    return make


def some_operands(target: Mixed, sites, kind: str):
    generator = torch.Generator().manual_seed(5)
    found = {}
    for site in sites:
        V = torch.randn(site.d_in, COUNT, generator=generator, dtype=torch.float64)
        U = torch.randn(COUNT, site.d_out, generator=generator, dtype=torch.float64)
        delta = None if kind == "folded" else dense(target, site.name) - (V @ U).T
        found[site.name] = Operands(V, U, delta)
    return found


TOKENS = torch.arange(10).reshape(2, 5)
KINDS = ["temp_hooks", "persistent_hooks", "wrapper", "folded"]


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_masks_one_the_output_is_the_targets(patched, kind) -> None:
    target = Mixed()
    expected = target(TOKENS)
    patching, sites = patched(kind, target)
    ones = {
        s.name: SiteMask(torch.ones(2, 5, COUNT, dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64))
        for s in sites
    }
    found = patching.masked(TOKENS, ones, some_operands(Mixed(), sites, kind))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    if kind == "folded":
        assert torch.equal(found, patching.run(TOKENS, Call()))


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_routed_the_output_is_the_targets_to_the_bit(patched, kind) -> None:
    target = Mixed()
    patching, sites = patched(kind, target)
    nowhere = torch.zeros(2, 5, dtype=torch.bool)
    masks = {
        s.name: SiteMask(torch.rand(2, 5, COUNT).double(), torch.rand(2, 5).double(), nowhere) for s in sites
    }
    assert torch.equal(
        patching.masked(TOKENS, masks, some_operands(Mixed(), sites, kind)), patching.run(TOKENS, Call())
    )


@pytest.mark.parametrize("kind", KINDS)
def test_without_deltas_it_is_the_model_whose_weights_are_the_products(patched, kind) -> None:
    target, replaced = Mixed(), Mixed()
    patching, sites = patched(kind, target)
    operands = some_operands(Mixed(), sites, kind)
    masks = {
        s.name: SiteMask(torch.ones(2, 5, COUNT, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.float64))
        for s in sites
    }
    weight = {name: (pair.V @ pair.U).T for name, pair in operands.items()}
    replaced.embed.weight.copy_(weight["embed"].T)
    replaced.linear.weight.copy_(weight["linear"])
    replaced.conv.weight.copy_(weight["conv"].T)
    expected = replaced(TOKENS) @ weight["identity"].T
    torch.testing.assert_close(patching.masked(TOKENS, masks, operands), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_module_computes_what_its_dense_matrix_would(patched, kind) -> None:
    target = Mixed()
    patching, sites = patched(kind, target)
    operands = some_operands(Mixed(), sites, kind)
    generator = torch.Generator().manual_seed(7)
    masks = {
        s.name: SiteMask(
            torch.rand(2, 5, COUNT, generator=generator, dtype=torch.float64),
            torch.rand(2, 5, generator=generator, dtype=torch.float64),
        )
        for s in sites
    }
    x = F.one_hot(TOKENS, VOCAB).double()
    plain, biases = Mixed(), {"linear": Mixed().linear.bias, "conv": Mixed().conv.bias}
    for site in sites:
        pair, mask = operands[site.name], masks[site.name]
        D = dense(plain, site.name) - (pair.V @ pair.U).T
        x = (
            (mask.mask * (x @ pair.V)) @ pair.U
            + mask.delta[..., None] * (x @ D.T)
            + biases.get(site.name, 0.0)
        )
    torch.testing.assert_close(patching.masked(TOKENS, masks, operands), x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", [two_step, fused])
def test_unmasked_forms_agree(form) -> None:
    target = Mixed()
    site = find_sites(target, [("linear", COUNT)])[0]
    pair = Operands(torch.randn(WIDTH, COUNT).double(), torch.randn(COUNT, WIDTH).double())
    x = torch.randn(2, 5, WIDTH).double()
    torch.testing.assert_close(form(x, site, pair), x @ pair.V @ pair.U)


def test_ci_errors_count_what_no_assignment_of_columns_can_mend() -> None:
    import numpy as np

    perfect = np.zeros((3, 6))
    perfect[[0, 1, 2], [4, 0, 5]] = 1.0
    assert ci_errors(perfect) == 0
    perfect[0, 1] = 0.5
    perfect[1, 0] = 0.8
    assert ci_errors(perfect) == 2


@pytest.mark.parametrize("kind", ["temp_hooks", "persistent_hooks", "wrapper"])
def test_an_error_inside_a_pass_leaves_nothing_behind(patched, kind) -> None:
    target = Mixed()
    expected = target(TOKENS)
    patching, sites = patched(kind, target)
    wrong = {sites[1].name: SiteMask(torch.rand(4, 4, COUNT).double())}
    with pytest.raises(RuntimeError):
        patching.masked(TOKENS, wrong, some_operands(Mixed(), sites, kind))
    torch.testing.assert_close(patching.run(TOKENS, Call()), expected)
    patching.endings.close()
    assert torch.equal(target(TOKENS), expected)
    assert all(not module._forward_hooks for module in target.modules())


def test_wrappers_keep_names_and_state_keys(patched) -> None:
    target = Mixed()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    patching, _ = patched("wrapper", target)
    assert target.state_dict().keys() == before.keys()
    patching.endings.close()
    assert all(torch.equal(target.state_dict()[name], value) for name, value in before.items())
