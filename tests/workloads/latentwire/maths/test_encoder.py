"""The byte encoder: positions, what padding changes, packed rows, and prefixes as loud as a table."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.latentwire.maths.encoder import (
    Adapter,
    LatentEncoder,
    Packed,
    calibrated,
    sinusoids,
    table_rms,
)
from perfsweep.workloads.latentwire.presets import PAD_BYTE


def test_positions_are_sines_and_then_cosines() -> None:
    found = sinusoids(3, 4)
    slow = 10000.0**-0.5
    assert found[2].tolist() == pytest.approx(
        [math.sin(2), math.sin(2 * slow), math.cos(2), math.cos(2 * slow)]
    )
    assert sinusoids(2, 5).shape == (2, 5)


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


def test_norms_stand_before_or_after_and_recomputing_changes_nothing() -> None:
    assert not torch.allclose(encoder("pre")(SOURCE), encoder("post")(SOURCE))
    made = encoder()
    plain = made(SOURCE)
    made.bytes.recompute = True
    assert torch.allclose(made(SOURCE), plain)


def test_the_padding_byte_embeds_to_nothing() -> None:
    assert not encoder().bytes.embedding.weight[PAD_BYTE].any()
    assert len(encoder().bytes.embedding.weight) == 257


def test_prefixes_are_scaled_row_by_row_to_the_tables_loudness() -> None:
    prefix = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[3.0, 4.0], [0.0, 5.0]]])
    found = calibrated(prefix, 0.5)
    assert found[0].flatten().tolist() == pytest.approx([0.5] * 4)
    assert found.square().mean(dim=(1, 2)).tolist() == pytest.approx([0.25, 0.25])
    assert torch.allclose(calibrated(prefix, torch.tensor(0.5)), found)
    assert float(table_rms(torch.tensor([[3.0, 4.0], [0.0, 5.0]]).bfloat16())) == pytest.approx(
        math.sqrt(12.5)
    )
    assert table_rms(torch.ones(1, 1, dtype=torch.float64)).dtype == torch.float64


def test_an_adapters_output_is_scaled_as_a_whole() -> None:
    torch.manual_seed(0)
    made = Adapter(4, 6)
    z = torch.randn(2, 3, 4)
    once = made(z)
    assert once.shape == (2, 3, 6)
    assert once.mean(-1).abs().max() < 1e-5
    made.scale.data.fill_(2.0)
    assert torch.allclose(made(z), 2 * once)
