"""Attention kernels with lanes across keys: the formula in double precision, and when they may be used."""

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

from perfsweep.workloads import native
from perfsweep.workloads.latentwire.kernels import native_attention
from perfsweep.workloads.latentwire.kernels.native_attention import LANES, OWN_HEAD, attention
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder, Packed
from perfsweep.workloads.latentwire.presets import PAD_BYTE

# The kernel takes seconds to build.
pytestmark = pytest.mark.workloads

HEADS = 3
WIDTH = HEADS * OWN_HEAD
LOW = torch.bfloat16
BOUND = {torch.float32: 3e-6, LOW: 4e-3}
"""Of a tensor's norm; to bfloat16 weights, derivatives and what goes out are rounded by up to 2e-3 each."""

Case = Callable[[], tuple[Tensor, Tensor, tuple[int, ...]]]


@pytest.fixture
def by_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of eight entries go to these kernels, also where there are tiles."""
    if native.compiler_here() is None:
        pytest.skip("there is no compiler")
    if native_attention.lanes() is None:
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
        k, v = (x.unflatten(-1, (HEADS, OWN_HEAD)).transpose(0, 1) for x in held.chunk(2, dim=-1))
        scores = mine.unflatten(-1, (HEADS, OWN_HEAD)).transpose(0, 1) @ k.transpose(1, 2)
        weights = torch.softmax(scores / math.sqrt(OWN_HEAD), dim=-1)
        mixed.append((weights @ v).transpose(0, 1).flatten(1))
    return torch.stack(mixed) if q.dim() == 3 else torch.cat(mixed)


def off(name: str, dtype: torch.dtype) -> float:
    """How far results and gradients are from exact ones, of their norms: the worst of them."""
    q, kv, lengths = CASES[name]()
    q, kv, found = q.to(dtype), kv.to(dtype), []
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
        return q, kv, lengths

    return made


CASES = {
    "two keys": case(2, 3),
    "around blocks of keys": case(31, 32, 33, 63, 64, 65),
    "around groups of queries": case(7, 8, 9, 12),
    "long rows": case(515, 700),
    "few queries for every row": case(40, 3, 70, asked=5),
    "more queries than keys": case(4, 33, asked=35),
    "scores far from zero": case(40, 75, loud=40.0),
    "scores far below zero": case(45, 70, shift=12.0),
}
CANCELS = {"scores far from zero": 4, "scores far below zero": 10}
"""How much more of rounding is left where scores, or what all keys share, are that large."""


@pytest.mark.usefixtures("by_lanes")
@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_exact_to_rounding(name: str, dtype: torch.dtype) -> None:
    assert off(name, dtype) < CANCELS.get(name, 1) * BOUND[dtype]


MISTAKES = {
    "keys that are padding weigh": ("maskz_scalef_ps(real, p, x)", "scalef_ps(p, x)", (LOW,)),
    "what all keys share stays in": (
        "_mm512_set1_ps(-asking.along[first + i])",
        "_mm512_setzero_ps()",
        BOUND,
    ),
}
"""What is planted into the source, text and its replacement, and the types in which it must be noticed."""


@pytest.mark.usefixtures("by_lanes")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_planted_into_the_kernel_is_noticed(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong, dtypes = MISTAKES[mistake]
    header = (native.HEADERS / "lanes.h").read_text()
    source = LANES.read_text().replace('#include "lanes.h"', header)
    assert source.count(right) == 1
    mutant = tmp_path / "mutant.cpp"
    mutant.write_text(source.replace(right, wrong))
    built = native.library(mutant, "encoder_attn=native", ("-O1",))
    monkeypatch.setattr(native_attention, "lanes", lambda: built)
    for dtype in dtypes:
        near, far = (off(name, dtype) for name in ("around blocks of keys", "scores far from zero"))
        assert not (near <= 20 * BOUND[dtype] and far <= 20 * BOUND[dtype])


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
        "lanes": kernels("attention_lanes", "attention_lanes_low"),
        "tiles": kernels("attention_tiles", "attention_tiles_low"),
    }
    for name, library in own.items():
        monkeypatch.setattr(native_attention, name, lambda library=library: library)
    return counted


@pytest.mark.parametrize(
    ("dtype", "width", "lacking", "expected"),
    [
        (torch.bfloat16, 8, (), "attention_tiles_low"),
        (torch.bfloat16, 8, ("tiles",), "attention_lanes_low"),
        (torch.bfloat16, 8, ("tiles", "lanes"), "attention_f32"),
        (torch.bfloat16, 16, ("tiles",), "attention_f32"),
        (torch.float16, 8, ("tiles",), "attention_lanes"),
        (torch.float32, 8, (), "attention_tiles"),
        (torch.float32, 8, ("tiles",), "attention_lanes"),
        (torch.float32, 8, ("tiles", "lanes"), "attention_f32"),
        (torch.float32, 16, ("tiles",), "attention_f32"),
        (torch.float64, 8, ("tiles",), "attention_f64"),
    ],
)
def test_only_heads_of_eight_go_by_lanes_without_tiles_and_only_bfloat16_by_pairs(
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


@pytest.mark.parametrize(("low", "expected"), [(True, "attention_lanes_low"), (False, "attention_lanes")])
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
    built = native.library(LANES, "encoder_attn=native", ("-march=haswell",))
    assert built.lanes_usable() == 0
    assert built.attention_lanes(*[0] * 14) == 1
