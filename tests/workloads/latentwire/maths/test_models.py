"""The frozen model: causal order, batch mates, caches, pruned rows, finite differences, reference library."""

from __future__ import annotations

import pytest
import torch
from tiers import longer

from perfsweep.workloads.latentwire.kernels import native_attention
from perfsweep.workloads.latentwire.maths.attention import KERNELS, Mask
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, Rows
from perfsweep.workloads.latentwire.presets import LMS, PAD_BYTE


def build(name="nano-l", attend="sdpa", recompute="off", dtype=torch.float64) -> CausalLM:
    lm = CausalLM(LMS[name], torch.Generator().manual_seed(0), dtype)
    lm.path = Path(LayerPath(KERNELS[attend], recompute))
    return lm


def inputs(lm: CausalLM, rows: int = 3, length: int = 9) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(rows, length, lm.config.d_model, dtype=lm.table.dtype)


@pytest.mark.parametrize("split", [1, 4, 8])
def test_kept_keys_and_values_replace_what_came_before(split) -> None:
    """Fewer queries than keys: an upper left causal mask would let the last queries see almost nothing."""
    lm = build()
    x, kept = inputs(lm), []
    whole = lm.run(x)
    lm.run(x[:, :split], keep=kept)
    rest = lm.run(x[:, split:], AttentionContext(kept))
    assert torch.allclose(rest, whole[:, split:], atol=1e-12)
    if split == 4:
        from perfsweep.workloads.latentwire.maths.attention import Allowed, sdpa

        q = torch.randn(1, 2, 3, 8)
        k = torch.randn(1, 2, 7, 8)
        right = sdpa(q, k, k, Mask(past=4).allowed(3, q.device))
        assert not torch.allclose(right, sdpa(q, k, k, Allowed(causal=True)))


@pytest.mark.parametrize("rows", [slice(4, 8), slice(8, None), torch.tensor([[0, 3], [2, 5], [7, 8]])])
def test_a_pruned_last_layer_gives_the_rows_that_are_read(rows) -> None:
    lm = build("nano-q")
    x = inputs(lm).requires_grad_()
    whole, pruned = Rows(rows).of(lm.run(x)), lm.run(x, rows=Rows(rows))
    assert torch.allclose(pruned, whole, atol=1e-12)
    grads = [
        torch.autograd.grad(out.square().sum() + out.sum(), x, retain_graph=True)[0]
        for out in (whole, pruned)
    ]
    assert torch.allclose(*grads, atol=1e-10)


# The encoder


def encoder(native: bool = False) -> LatentEncoder:
    torch.manual_seed(0)
    made = LatentEncoder(32, 2, 64, 4, "post", 0.0).double()
    if native:
        made.pack(native_attention.attention)
    return made


def padded(text: bytes, width: int) -> list[int]:
    return [*text, *[PAD_BYTE] * (width - len(text))]


@pytest.mark.parametrize("native", [False, *longer(True)])
def test_latents_do_not_depend_on_batch_mates_or_padding(native) -> None:
    made = encoder(native)
    alone = made(torch.tensor([list(b"short")]))
    among = made(torch.tensor([padded(b"short", 40), padded(b"a much longer neighbour in the batch", 40)]))
    assert torch.allclose(among[:1], alone, atol=1e-12)
    # The mutant lets padding count, as upstream did.
    unmasked = made.bytes(torch.tensor([padded(b"short", 40)]), torch.ones(1, 1, 1, 40, dtype=torch.bool))
    z = made.pooler(unmasked, torch.ones(1, 1, 1, 40, dtype=torch.bool))
    assert not torch.allclose(z, alone, atol=1e-3)
