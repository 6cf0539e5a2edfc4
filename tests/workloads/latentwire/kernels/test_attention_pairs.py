"""The attention kernel by pairs of bfloat16: the formula in double precision, and when it may be used."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from workloads import native
from workloads.latentwire.kernels import native_attention
from workloads.latentwire.kernels.native_attention import PAIRS, TILE_HEAD, attention
from workloads.latentwire.maths.encoder import LatentEncoder, Packed
from workloads.latentwire.presets import PAD_BYTE

# The kernel takes seconds to build.
pytestmark = pytest.mark.workloads

HEADS = 3
WIDTH = HEADS * TILE_HEAD
BOUND = 4e-3
"""Of a tensor's norm: weights, derivatives and what goes out are rounded by up to 2^-9 = 2e-3 each."""

Case = Callable[[], tuple[Tensor, Tensor, tuple[int, ...]]]


@pytest.fixture
def by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of eight entries in bfloat16 go to this kernel, also where there are tiles."""
    if native.compiler_here() is None:
        pytest.skip("there is no compiler")
    if native_attention.pairs() is None:
        pytest.skip("this processor multiplies no pairs of bfloat16")
    monkeypatch.setattr(native_attention, "tiles", lambda: None)


def rows_of(*lengths: int) -> Packed:
    counts = torch.tensor(lengths)
    return Packed(counts.cumsum(0) - counts, counts)


def exact(q: Tensor, kv: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """softmax(q k' / sqrt(8)) v in double precision, row by row; q [total, w] or [B, S, w]"""
    q, kv = q.double(), kv.double()
    asked = list(q) if q.dim() == 3 else q.split(lengths)
    mixed = []
    for mine, held in zip(asked, kv.split(lengths), strict=True):
        k, v = (x.unflatten(-1, (HEADS, TILE_HEAD)).transpose(0, 1) for x in held.chunk(2, dim=-1))
        scores = mine.unflatten(-1, (HEADS, TILE_HEAD)).transpose(0, 1) @ k.transpose(1, 2)
        weights = torch.softmax(scores / math.sqrt(TILE_HEAD), dim=-1)
        mixed.append((weights @ v).transpose(0, 1).flatten(1))
    return torch.stack(mixed) if q.dim() == 3 else torch.cat(mixed)


def off(q: Tensor, kv: Tensor, lengths: tuple[int, ...]) -> float:
    """How far results and gradients are from exact ones, of their norms: the worst of them."""
    found = []
    for attend in (
        lambda *given: attention(*given, rows_of(*lengths), HEADS),
        lambda *given: exact(*given, lengths),
    ):
        mine, held = q.clone().requires_grad_(), kv.clone().requires_grad_()
        out = attend(mine, held)
        given = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        found.append((out.detach(), *torch.autograd.grad(out, (mine, held), given.to(out.dtype))))
    each = [
        (ours.double() - right.double()).norm() / right.double().norm()
        for ours, right in zip(*found, strict=True)
    ]
    return float(torch.stack(each).max())  # where one is not a number, neither is this


def case(*lengths: int, asked: int = 0, loud: float = 1.0, shift: float = 0.0) -> Case:
    """Rows of normal numbers; queries `loud` times as large, `shift` lowers all scores."""

    def made() -> tuple[Tensor, Tensor, tuple[int, ...]]:
        torch.manual_seed(0)
        q = torch.randn(len(lengths), asked, WIDTH) if asked else torch.randn(sum(lengths), WIDTH)
        kv = torch.randn(sum(lengths), 2 * WIDTH)
        q, kv[:, :WIDTH] = loud * q + shift, kv[:, :WIDTH] - shift
        return q.bfloat16(), kv.bfloat16(), lengths

    return made


CASES = {
    "two keys": case(2, 3),
    "around blocks of keys": case(31, 32, 33, 63, 64, 65),
    "around groups of queries": case(7, 8, 9, 12),
    "long rows": case(515, 700),
    "few queries for every row": case(40, 3, 70, asked=5),
    "more queries than keys": case(4, 33, asked=35),
    "scores far from zero": case(40, 75, loud=40.0),
}


@pytest.mark.usefixtures("by_pairs")
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_exact_to_the_rounding_of_weights(name: str) -> None:
    assert off(*CASES[name]()) < BOUND


@pytest.mark.usefixtures("by_pairs")
def test_keys_that_are_padding_count_for_nothing_where_all_others_are_far_below_them() -> None:
    """Rounded derivatives leave something of what all keys share, here ten times what tells them apart."""
    assert off(*case(45, 70, shift=12.0)()) < 10 * BOUND


@pytest.mark.usefixtures("by_pairs")
def test_what_is_not_a_number_stays_visible_where_it_is() -> None:
    q, kv = torch.zeros(40, WIDTH).bfloat16(), torch.ones(40, 2 * WIDTH).bfloat16()
    kv[2, 0] = math.nan
    out = attention(q, kv, rows_of(20, 20), HEADS)
    assert out[:20, :TILE_HEAD].isnan().all()
    assert (out[20:] == 1).all()
    assert (out[:, TILE_HEAD:] == 1).all()


@pytest.mark.usefixtures("by_pairs")
def test_positions_behind_the_last_row_are_zero_and_get_no_gradient() -> None:
    q, kv = (torch.randn(12, n * WIDTH).bfloat16().requires_grad_() for n in (1, 2))
    out = attention(q, kv, rows_of(4, 5), HEADS)
    out.sum().backward()
    for tensor in (out, q.grad, kv.grad):
        assert tensor is not None
        assert tensor[9:].abs().sum() == 0
        assert tensor[:9].abs().sum() > 0


MISTAKES = {
    "keys that are padding weigh": ("_mm512_maskz_scalef_ps(real, p, x)", "_mm512_scalef_ps(p, x)"),
    "no largest score is looked for": ("if (!near(asked)) largest(asked, tops);", ""),
    "half of the scores are of other keys": ("dot(s[i][1], q, second)", "dot(s[i][1], q, first)"),
    "two queries change places": ("laid(weights[i], weights[i + 1],", "laid(weights[i + 1], weights[i],"),
    "what all keys share stays in": ("_mm512_set1_ps(-asking.along[first + i])", "_mm512_setzero_ps()"),
    "sums are written to other keys": ("4 * (quarter / 2) + m;", "4 * (1 - quarter / 2) + m;"),
    "a quarter of a sum is left out": (
        "by_eight[i] = halved(by_four[2 * i], by_four[2 * i + 1])",
        "by_eight[i] = by_four[i]",
    ),
}
"""What is planted into the source: text and its replacement."""


@pytest.mark.usefixtures("by_pairs")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_planted_into_the_kernel_is_noticed(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = MISTAKES[mistake]
    header = (native.HEADERS / "pairs.h").read_text()
    source = PAIRS.read_text().replace('#include "pairs.h"', header)
    assert source.count(right) == 1
    mutant = tmp_path / "mutant.cpp"
    mutant.write_text(source.replace(right, wrong))
    built = native.library(mutant, "encoder_attn=native")
    monkeypatch.setattr(native_attention, "pairs", lambda: built)
    near, far = (off(*CASES[name]()) for name in ("around blocks of keys", "scores far from zero"))
    assert not (near <= 4 * BOUND and far <= 4 * BOUND)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often which kernel computes; none does."""
    counted = Counter[str]()

    def kernels(*names: str) -> SimpleNamespace:
        def called(name: str) -> Callable[..., int]:
            return lambda *_given: counted.update([name]) or 0

        return SimpleNamespace(**{name: called(name) for name in names})

    own = {
        "library": kernels("attention_f32", "attention_f64"),
        "pairs": kernels("attention_pairs"),
        "tiles": kernels("attention_tiles", "attention_tiles_low"),
    }
    for name, library in own.items():
        monkeypatch.setattr(native_attention, name, lambda library=library: library)
    return counted


@pytest.mark.parametrize(
    ("dtype", "width", "lacking", "expected"),
    [
        (torch.bfloat16, 8, ("tiles",), "attention_pairs"),
        (torch.bfloat16, 8, (), "attention_tiles_low"),
        (torch.bfloat16, 8, ("tiles", "pairs"), "attention_f32"),
        (torch.bfloat16, 16, ("tiles",), "attention_f32"),
        (torch.float16, 8, ("tiles",), "attention_f32"),
        (torch.float32, 8, ("tiles",), "attention_f32"),
        (torch.float32, 8, (), "attention_tiles"),
        (torch.float64, 8, ("tiles",), "attention_f64"),
    ],
)
def test_only_heads_of_eight_in_bfloat16_go_by_pairs_and_only_without_tiles(
    calls: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    width: int,
    lacking: tuple[str, ...],
    expected: str,
) -> None:
    for name in lacking:
        monkeypatch.setattr(native_attention, name, lambda: None)
    q = torch.randn(9, 2 * width, dtype=dtype, requires_grad=True)
    attention(q, torch.randn(9, 4 * width, dtype=dtype), rows_of(4, 5), 2).sum().backward()
    assert calls == {expected: 2}


@pytest.mark.parametrize(("low", "expected"), [(True, "attention_pairs"), (False, "attention_f32")])
def test_an_encoder_goes_by_pairs_under_autocast_alone(
    calls: Counter[str], monkeypatch: pytest.MonkeyPatch, low: bool, expected: str
) -> None:
    monkeypatch.setattr(native_attention, "tiles", lambda: None)
    made = LatentEncoder(width=64, layers=1, max_bytes=16, latents=4, norm="post", dropout=0.0)
    made.pack(attention)
    source = torch.full((3, 16), PAD_BYTE)
    source[:, :9] = 65
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        made(source).float().sum().backward()
    assert calls == {expected: 4}  # the layer's and the pooler's, there and back


@pytest.mark.skipif(
    native.compiler_here() is None or platform.machine() != "x86_64", reason="compiles for an x86 processor"
)
def test_built_for_a_processor_without_pairs_the_kernel_says_so() -> None:
    built = native.library(PAIRS, "encoder_attn=native", ("-march=haswell",))
    assert built.pairs_usable() == 0
    assert built.attention_pairs(*[0] * 14) == 1
