"""The byte encoder: positions, what padding changes, packed rows, and prefixes as loud as a table."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from perfsweep.workloads.latentwire.maths.encoder import Adapter, LatentEncoder, Packed
from perfsweep.workloads.latentwire.presets import ENCODER_HEADS, PAD_BYTE


def encoder(norm: str = "post", latents: int = 3) -> LatentEncoder:
    torch.manual_seed(0)
    return LatentEncoder(16, 2, 12, latents, norm, 0.0)


def test_encoder_and_adapter_have_matrices_and_biases_of_these_sizes() -> None:
    made = encoder()
    counted = {name: sum(p.numel() for p in part.parameters()) for name, part in made.named_children()}
    layer = 4 * (16 * 16 + 16) + 2 * 4 * 16 * 16 + 4 * 16 + 16 + 2 * 2 * 16
    pooler = 3 * 16 + 4 * (16 * 16 + 16) + 2 * 2 * 16 + (16 * 16 + 16) + 2 * 2 * 16 * 16 + 2 * 16 + 16
    assert counted == {"bytes": 257 * 16 + 2 * layer + 2 * 16, "pooler": pooler}
    hidden = (4 * 8 + 8) + (8 * 8 + 8) + (8 * 6 + 6)
    own = sum(p.numel() for p in Adapter(4, 6).parameters())
    assert own == 2 * 4 + hidden + 4 * 6 + 2 * (4 * 6 + 6) + 2 * 6 + 1  # a skip without, FiLM with biases


def one_by_one(asked: torch.Tensor, held: torch.Tensor, rows: Packed, heads: int) -> torch.Tensor:
    """Attention of packed rows, row by row; queries are packed likewise, or as many for each row."""
    found = torch.zeros_like(asked)
    for number, (start, length) in enumerate(zip(rows.starts.tolist(), rows.lengths.tolist(), strict=True)):
        part = slice(start, start + length)
        own = asked[part] if asked.dim() == 2 else asked[number]
        k, v = held[part].chunk(2, dim=-1)
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1) for x in (own, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)
        if asked.dim() == 2:
            found[part] = mixed
        else:
            found[number] = mixed
    return found


def by_hand(made: LatentEncoder, source: torch.Tensor, norm: str) -> torch.Tensor:
    """Latents [M, w] of one row without padding, by the formulas of an encoder and of gated queries."""
    whole = Packed(torch.tensor([0]), torch.tensor([len(source)]))

    def attend(module, asked, held):
        q = module.q(asked)
        return module.o(one_by_one(q, module.kv(held), whole, ENCODER_HEADS))

    x, places = made.bytes.embedding(source), torch.arange(len(source))[:, None]
    angles = places / 10000.0 ** (torch.arange(0, 16, 2) / 16)
    x = x + torch.cat((angles.sin(), angles.cos()), 1)
    for layer in made.bytes.layers:
        first, last = (layer.norm1, layer.norm2) if norm == "post" else (nn.Identity(), nn.Identity())
        before = (nn.Identity(), nn.Identity()) if norm == "post" else (layer.norm1, layer.norm2)
        x = first(x + attend(layer.attention, before[0](x), before[0](x)))
        x = last(x + layer.outer(F.gelu(layer.inner(before[1](x)))))
    x, q, pooler = made.bytes.norm(x), made.pooler.queries, made.pooler
    read = attend(pooler.attention, q, x) + q
    share = torch.sigmoid(pooler.gate(pooler.norm1(read)))
    mixed = share * read + (1 - share) * q
    return mixed + pooler.outer(F.gelu(pooler.inner(pooler.norm2(mixed))))


SOURCE = torch.tensor([[1, 2, 3, 4, 5], [6, 7, PAD_BYTE, PAD_BYTE, PAD_BYTE], [8, 9, 10, PAD_BYTE, PAD_BYTE]])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_and_mates_change_nothing_and_packed_rows_are_the_same(norm: str) -> None:
    made = encoder(norm)
    padded = made(SOURCE)
    assert padded.shape == (3, 3, 16)
    assert torch.allclose(by_hand(made, SOURCE[0], norm), padded[0], atol=1e-6)
    for row, length in enumerate((5, 2, 3)):
        assert torch.allclose(made(SOURCE[row : row + 1, :length])[0], padded[row], atol=1e-6)
    made.pack(one_by_one)
    assert made.native
    assert torch.allclose(made(SOURCE), padded, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):  # shapes are filled up
        assert torch.allclose(made(SOURCE).float(), padded, atol=0.1)


def test_padding_that_counted_as_in_upstream_would_change_latents() -> None:
    made, everything = encoder(), torch.ones(1, 1, 1, SOURCE.shape[1], dtype=torch.bool)
    alone = made(SOURCE[1:2, :2])
    unmasked = made.pooler(made.bytes(SOURCE[1:2], everything), everything)
    assert not torch.allclose(unmasked, alone, atol=1e-3)
