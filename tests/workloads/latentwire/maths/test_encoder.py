"""The byte encoder: positions, what padding changes, packed rows, and prefixes as loud as a table."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, Packed
from perfsweep.workloads.latentwire.presets import PAD_BYTE


def encoder(norm: str = "post", latents: int = 3) -> LatentEncoder:
    torch.manual_seed(0)
    return LatentEncoder(16, 2, 12, latents, norm, 0.0)


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


SOURCE = torch.tensor([[1, 2, 3, 4, 5], [6, 7, PAD_BYTE, PAD_BYTE, PAD_BYTE], [8, 9, 10, PAD_BYTE, PAD_BYTE]])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_padding_and_mates_change_nothing_and_packed_rows_are_the_same(norm: str) -> None:
    made = encoder(norm)
    padded = made(SOURCE)
    assert padded.shape == (3, 3, 16)
    for row, length in enumerate((5, 2, 3)):
        assert torch.allclose(made(SOURCE[row : row + 1, :length])[0], padded[row], atol=1e-6)
    made.pack(one_by_one)
    assert made.native
    assert torch.allclose(made(SOURCE), padded, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):  # shapes are filled up
        assert torch.allclose(made(SOURCE).float(), padded, atol=0.1)
