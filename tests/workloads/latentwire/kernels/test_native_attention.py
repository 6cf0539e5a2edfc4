"""The encoder's attention kernel: the textbook formula, awkward lengths, and what loading must not do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.latentwire.kernels import native_attention
from perfsweep.workloads.latentwire.kernels.native_attention import HEAD_WIDTHS, OWN_HEAD, attention, library
from perfsweep.workloads.latentwire.maths import encoder
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, Packed
from perfsweep.workloads.latentwire.presets import PAD_BYTE

# The kernel takes seconds to build.
pytestmark = pytest.mark.workloads

HEADS = 3


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    try:
        library()
    except UnsupportedHere as reason:
        pytest.skip(str(reason))


def rows_of(*lengths: int) -> Packed:
    counts = torch.tensor(lengths)
    return Packed(counts.cumsum(0) - counts, counts)


def textbook(q: Tensor, kv: Tensor, rows: Packed) -> Tensor:
    """softmax(q k' / sqrt(e)) v, head by head and row by row; q [total, w] or [B, S, w]"""
    width = q.shape[-1] // HEADS
    mixed = []
    for number, (start, length) in enumerate(zip(rows.starts.tolist(), rows.lengths.tolist(), strict=True)):
        asked = q[number] if q.dim() == 3 else q[start : start + length]
        k, v = kv[start : start + length].chunk(2, dim=-1)
        heads = []
        for at in range(0, HEADS * width, width):
            scores = asked[:, at : at + width] @ k[:, at : at + width].T / math.sqrt(width)
            heads.append(torch.softmax(scores, dim=-1) @ v[:, at : at + width])
        mixed.append(torch.cat(heads, dim=-1))
    return torch.stack(mixed) if q.dim() == 3 else torch.cat(mixed)


def both(q: Tensor, kv: Tensor, rows: Packed) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(result, gradient of q, gradient of kv) of the kernel, and of the formula in double precision."""
    found = []
    for attend, kind in (
        (lambda q, kv, rows: attention(q, kv, rows, HEADS), q.dtype),
        (textbook, torch.float64),
    ):
        mine, held = q.detach().to(kind).requires_grad_(), kv.detach().to(kind).requires_grad_()
        out = attend(mine, held, rows)
        generator = torch.Generator().manual_seed(1)
        out.backward(torch.randn(out.shape, generator=generator, dtype=torch.float64).to(kind))
        assert mine.grad is not None
        assert held.grad is not None
        found.append((out.detach(), mine.grad, held.grad))
    return found


def assert_same(q: Tensor, kv: Tensor, rows: Packed) -> None:
    bound = 1e-12 if q.dtype == torch.float64 else 2e-5
    for ours, exact in zip(*both(q, kv, rows), strict=True):
        assert (ours.double() - exact).abs().max() <= bound * exact.abs().max().clamp(min=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", HEAD_WIDTHS)
def test_rows_attend_to_themselves(width: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rows = rows_of(1, 5, 64, 65, 130)  # around the kernel's blocks of keys and groups of queries
    total = int(rows.lengths.sum())
    assert_same(
        torch.randn(total, HEADS * width, dtype=dtype),
        torch.randn(total, 2 * HEADS * width, dtype=dtype),
        rows,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("asked", [1, 6])
def test_every_row_answers_the_same_number_of_queries(asked: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    rows = rows_of(3, 70)
    assert_same(
        torch.randn(2, asked, HEADS * 8, dtype=dtype), torch.randn(73, 2 * HEADS * 8, dtype=dtype), rows
    )


KERNELS = ("tiles", "lanes", "vectors")


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which kernel heads of eight entries have: of those that a processor has the first."""
    for name in KERNELS[: KERNELS.index(request.param)]:
        monkeypatch.setattr(native_attention, name, lambda: None)
    if request.param != "vectors" and getattr(native_attention, request.param)() is None:
        pytest.skip(f"this processor has no kernel by {request.param}")
    return request.param


@pytest.mark.parametrize("lengths", [(1,), (2, 31), (32, 33, 16, 17), (63, 64, 65), (515, 700)], ids=str)
def test_all_kernels_of_heads_of_eight_agree_with_the_formula(kernel: str, lengths: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    rows, width = rows_of(*lengths), HEADS * OWN_HEAD
    kv = torch.randn(sum(lengths), 2 * width)
    assert_same(torch.randn(sum(lengths), width), kv, rows)
    assert_same(torch.randn(len(lengths), 35, width), kv, rows)


def test_scores_far_from_zero_are_as_precise(kernel: str) -> None:
    """Where no bound keeps exponentials in range the largest score has to be found."""
    torch.manual_seed(0)
    q, kv = 12 * torch.randn(40, HEADS * OWN_HEAD), torch.randn(40, 2 * HEADS * OWN_HEAD)
    kv[:, : HEADS * OWN_HEAD] *= 8
    for ours, exact in zip(*both(q, kv, rows_of(40)), strict=True):
        assert (ours.double() - exact).abs().max() <= 1e-4 * exact.abs().max()


def test_16_bit_inputs_are_answered_to_their_precision(kernel: str) -> None:
    torch.manual_seed(0)
    q, kv = torch.randn(150, HEADS * OWN_HEAD).bfloat16(), torch.randn(150, 2 * HEADS * OWN_HEAD).bfloat16()
    for ours, exact in zip(*both(q, kv, rows_of(70, 80)), strict=True):
        assert (ours.double() - exact).norm() <= 1e-2 * exact.norm()


def test_what_a_step_left_behind_reaches_no_other(kernel: str) -> None:
    """Scratch is used again: a long row of large numbers first, then a short one."""
    torch.manual_seed(0)
    large = 1e3 * torch.randn(200, HEADS * OWN_HEAD)
    attention(large, torch.cat((large, large), dim=1), rows_of(200), HEADS)
    assert_same(torch.randn(5, HEADS * OWN_HEAD), torch.randn(5, 2 * HEADS * OWN_HEAD), rows_of(5))


def test_one_key_that_outweighs_all_others_leaves_no_trace_of_them(kernel: str) -> None:
    torch.manual_seed(0)
    q, kv = torch.randn(40, HEADS * 8), torch.randn(40, 2 * HEADS * 8)
    q[:, :] = 30.0
    kv[:, : HEADS * 8] = -30.0
    kv[7, : HEADS * 8] = 30.0
    assert_same(q, kv, rows_of(40))
    assert torch.equal(attention(q, kv, rows_of(40), HEADS), kv[7, HEADS * 8 :].expand(40, -1))


def test_what_is_not_a_number_stays_visible(kernel: str) -> None:
    q, kv = torch.zeros(4, HEADS * 8), torch.zeros(4, 2 * HEADS * 8)
    kv[2, 0] = math.nan
    assert attention(q, kv, rows_of(4), HEADS)[:, :8].isnan().all()


def test_positions_behind_the_last_row_are_zero_and_get_no_gradient(kernel: str) -> None:
    torch.manual_seed(0)
    q, kv = torch.randn(12, HEADS * 8, requires_grad=True), torch.randn(12, 2 * HEADS * 8, requires_grad=True)
    out = attention(q, kv, rows_of(4, 5), HEADS)
    out.sum().backward()
    for tensor in (out, q.grad, kv.grad):
        assert tensor is not None
        assert tensor[9:].abs().sum() == 0
        assert tensor[:9].abs().sum() > 0


@pytest.mark.parametrize("step", [1, 8, 256])
def test_filling_shapes_up_for_16_bit_products_changes_no_latent(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "SHAPE_STEP", step)
    torch.manual_seed(0)
    made = LatentEncoder(width=32, layers=1, max_bytes=16, latents=4, norm="post", dropout=0.0)
    made.pack(attention)
    lengths: list[int] = []
    made.bytes.register_forward_hook(lambda _module, _given, out: lengths.append(len(out)))
    source = torch.randint(0, PAD_BYTE, (3, 16))
    source[0, 5:] = PAD_BYTE
    exact = made(source)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = made(source)
    assert torch.allclose(found.float(), exact, atol=0.05)
    assert lengths == [37, -(-37 // step) * step]
    found.float().sum().backward()
    gradients = [parameter.grad for parameter in made.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


def test_loading_the_kernel_keeps_denormal_numbers() -> None:
    assert (torch.full((64,), 1e-40) * 1).min() > 0
    assert 5e-324 * 1.0 > 0
