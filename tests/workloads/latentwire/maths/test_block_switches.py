"""Windows, layers that turn nothing, norms of queries and keys or after: the same in every form of a pass."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from tiers import tiered
from torch import Tensor

from perfsweep.workloads.latentwire.maths.attention import KERNELS, Allowed, Mask, sdpa
from perfsweep.workloads.latentwire.maths.greedy_decoding import BatchDecoder, Decoder
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues, Rows
from perfsweep.workloads.latentwire.presets import LMConfig
from perfsweep.workloads.latentwire.training import sharding

PLAIN = LMConfig(64, 32, 3, 4, 2, 8, 48, qkv_bias=True)
WINDOW: dict[str, Any] = {"window": 4, "windowed": (0, 2)}
SWITCHES: dict[str, dict[str, Any]] = {
    "window": WINDOW,
    "window of one": {"window": 1, "windowed": (0, 1, 2)},
    "window in the middle": {"window": 12, "windowed": (1,)},
    "unturned": {"unturned": (0, 2)},
    "per head": {"qk_norm": "head"},
    "per row": {"qk_norm": "row"},
    "after": {"norms": "after"},
    "both": {"norms": "both"},
    "local": {**WINDOW, "local_theta": 10.0},
    "query scale": {"query_scale": 3.0},
    "score cap": {"score_cap": 0.002},
    "many": {**WINDOW, "unturned": (2,), "qk_norm": "row", "norms": "after"},
}
ROWS, LENGTH = 2, 13


def build(switches: dict[str, Any], attend: str = "eager") -> CausalLM:
    lm = CausalLM(dataclasses.replace(PLAIN, **switches), torch.Generator().manual_seed(0), torch.float64)
    for name, parameter in lm.named_parameters():
        if "norm" in name or "after" in name:
            drawn = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
            parameter.data.copy_(parameter * (0.5 + drawn))
    lm.path = Path(LayerPath(KERNELS[attend]))
    return lm


def inputs() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(ROWS, LENGTH, PLAIN.d_model, dtype=torch.float64, generator=generator)


def whole(lm: CausalLM) -> Tensor:
    return lm.run(inputs())


def in_two_passes(lm: CausalLM) -> Tensor:
    kept: KeyValues = []
    first = lm.run(inputs()[:, :6], keep=kept)
    return torch.cat((first, lm.run(inputs()[:, 6:], AttentionContext(kept))), dim=1)


def one_by_one(lm: CausalLM) -> Tensor:
    kept: KeyValues = []
    states = []
    for at in range(LENGTH):
        past, kept = kept or None, []
        states.append(lm.run(inputs()[:, at : at + 1], AttentionContext(past), keep=kept))
    return torch.cat(states, dim=1)


def gathered(lm: CausalLM) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharding.dist, "all_gather_into_tensor", lambda to, own: to.copy_(own))
        sharding.shard(lm, 0, 1, Counter())
        return lm.run(inputs())


PASSES = {one.__name__: one for one in (whole, in_two_passes, one_by_one, gathered)}
FORMS = [
    *(("eager", name) for name in PASSES),
    ("sdpa", "whole"),
    *(("flash", name) for name in ("whole", "in_two_passes")),
]
QUICK = tuple("=".join(("many", *form)) for form in FORMS)


@pytest.mark.parametrize(
    ("switch", "attend", "name"), tiered([(switch, *form) for switch in SWITCHES for form in FORMS], QUICK)
)
def test_a_switch_computes_the_same_in_every_form(switch, attend, name) -> None:
    expected = whole(build(SWITCHES[switch]))
    found = PASSES[name](build(SWITCHES[switch], attend))
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_changes_what_is_computed(switch) -> None:
    assert not torch.allclose(whole(build(SWITCHES[switch])), whole(build({})), atol=1e-3)


@pytest.mark.parametrize("rows", [slice(4, 8), slice(12, None), torch.tensor([[0, 3], [7, 12]])])
def test_rows_that_are_read_are_the_same_with_their_derivatives(rows) -> None:
    lm, x = build(SWITCHES["many"]), inputs().requires_grad_()
    every, pruned = Rows(rows).of(lm.run(x)), lm.run(x, rows=Rows(rows))
    assert torch.allclose(pruned, every, atol=1e-12)
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in (every, pruned)]
    assert torch.allclose(*grads, atol=1e-10)


@pytest.mark.parametrize("switch", tiered([(one,) for one in SWITCHES], ("many",)))
@pytest.mark.parametrize("deep", [False, True])
def test_answers_are_the_same_together_and_row_by_row(switch, deep) -> None:
    """Pads of a shorter prefix lie between it and its answer: a window counts positions, and not columns."""
    ids = []
    lm, x = build(SWITCHES[switch], "sdpa"), inputs()
    past = None
    if deep:
        past = [(torch.randn(ROWS, 2, 3, 8).double(), torch.randn(ROWS, 2, 3, 8).double()) for _ in range(3)]
    for decoder in (Decoder, BatchDecoder):
        found, _ = decoder(lm, stop=-1, max_new=8)(x, [5, LENGTH], past)
        ids.append(found)
    assert torch.equal(*ids)


def test_a_mask_of_the_upper_left_corner_would_hide_past_keys_from_the_last_queries() -> None:
    q, k = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 7, 8)
    right = sdpa(q, k, k, Mask(past=4).allowed(3, q.device))
    assert not torch.allclose(right, sdpa(q, k, k, Allowed(causal=True)))


def test_capped_scores_are_no_fused_kernels_work() -> None:
    for switch, calls in (("window", PLAIN.n_layers), ("score cap", 0)):
        lm = build(SWITCHES[switch], "sdpa")
        whole(lm)
        assert lm.chosen.counts["attention_kernels"] == calls
