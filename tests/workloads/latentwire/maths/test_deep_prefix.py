"""The deep prefix: what attention with past keys and values gives, for rows that come after it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from added import ROWS, build, derivatives, distance, inputs, learn
from torch import Tensor

from perfsweep.workloads.latentwire.maths.encoder import table_rms
from perfsweep.workloads.latentwire.maths.passes import AttentionContext, KeyValues
from perfsweep.workloads.latentwire.maths.trainables import DeepPrefix
from perfsweep.workloads.latentwire.presets import LMS

PAST = 3


class Reference:
    """The model for one row and head at a time, with complex rotations: shares nothing with `lm.py`."""

    def __init__(
        self, lm: Any, *, rotate_past: bool = False, first: int = PAST, hidden: bool = False
    ) -> None:
        self.lm, self.config = lm, lm.config
        self.rotate_past, self.first, self.hidden = rotate_past, first, hidden

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.config.rms_eps).sqrt() * weight

    def turned(self, heads: Tensor, first: int) -> Tensor:
        """[S, e] as e / 2 complex numbers, each turned by its own speed."""
        half = self.config.head_dim // 2
        speed = torch.tensor(
            [self.config.rope_theta ** (-i / half) for i in range(half)], dtype=torch.float64
        )
        angles = torch.arange(first, first + len(heads), dtype=torch.float64)[:, None] * speed
        z = torch.complex(heads[:, :half], heads[:, half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat((z.real, z.imag), dim=-1)

    def head(self, q: Tensor, k: Tensor, v: Tensor, past: tuple[Tensor, Tensor]) -> Tensor:
        old = self.turned(past[0], 0) if self.rotate_past else past[0]
        q, k = self.turned(q, self.first), torch.cat((old, self.turned(k, self.first)))
        v, out = torch.cat((past[1], v)), []
        for i in range(len(q)):
            seen = slice(0, i + 1 if self.hidden else len(old) + i + 1)
            out.append(torch.softmax(k[seen] @ q[i] / math.sqrt(len(q[i])), 0) @ v[seen])
        return torch.stack(out)

    def row(self, x: Tensor, past: list[tuple[Tensor, Tensor]]) -> Tensor:
        """x [S, d], past [g, M, e] of every layer -> [S, d]"""
        e, group = self.config.head_dim, self.config.n_heads // self.config.n_kv_heads
        for layer, (keys, values) in zip(self.lm.layers, past, strict=True):
            normed = self.norm(x, layer.norm1)
            q, k, v = (F.linear(normed, w.matrix, w.bias) for w in (layer.q, layer.k, layer.v))
            heads = []
            for h in range(self.config.n_heads):
                own, shared = slice(h * e, (h + 1) * e), slice(h // group * e, (h // group + 1) * e)
                heads.append(
                    self.head(q[:, own], k[:, shared], v[:, shared], (keys[h // group], values[h // group]))
                )
            x = x + torch.cat(heads, -1) @ layer.o.matrix.T
            normed = self.norm(x, layer.norm2)
            x = (
                x
                + (F.silu(normed @ layer.gate.matrix.T) * (normed @ layer.up.matrix.T)) @ layer.down.matrix.T
            )
        return self.norm(x, self.lm.norm)

    def __call__(self, x: Tensor, past: KeyValues) -> Tensor:
        return torch.stack([self.row(row, [(k[i], v[i]) for k, v in past]) for i, row in enumerate(x)])


def deep_past() -> tuple[DeepPrefix, Tensor, KeyValues]:
    config = LMS["nano-q"]
    torch.manual_seed(5)
    deep = DeepPrefix(config).double()
    soft = torch.randn(ROWS, PAST, config.d_model, dtype=torch.float64).requires_grad_()
    return deep, soft, deep(soft)


@pytest.mark.parametrize("attend", ["eager", "sdpa"])
@pytest.mark.parametrize("recompute", ["off", "on", "selective"])
def test_a_deep_prefix_is_what_attention_with_past_keys_gives(attend, recompute) -> None:
    deep, soft, past = deep_past()
    x = inputs().requires_grad_()
    expected = Reference(build())(x, past)
    found = build(attend, recompute=recompute).run(x, AttentionContext(past))
    assert distance(found, expected) <= 1e-12
    of = [x, soft, deep.map.weight, deep.map.bias]
    for got, right in zip(
        derivatives(found, of), derivatives(Reference(build())(x, deep(soft)), of), strict=True
    ):
        assert distance(got, right) <= 1e-10


@pytest.mark.parametrize("mutant", [{"rotate_past": True}, {"first": 0}, {"hidden": True}])
def test_rotated_keys_other_positions_and_an_upper_left_mask_are_told_apart(mutant) -> None:
    _, _, past = deep_past()
    assert distance(Reference(build(), **mutant)(inputs(), past), Reference(build())(inputs(), past)) > 1e-4


def test_the_row_follows_the_deep_prefix_in_a_training(start) -> None:
    """The teacher-forced loss, from the reference model and the trained parts alone."""
    made = learn(start({"passes": "merged"}, dtype="float64", models=1, deep_prefix=True))
    model, layout, corpus = made.arm.models[0], made.arm.layouts[0], made.arm.corpus
    found = {}
    with torch.no_grad():
        for first in (layout.latents, 0):  # the mutant counts the row's positions from 0
            nll, tokens = 0.0, 0
            reference = Reference(model.lm, first=first)
            for number in range(4):
                text = list(corpus.examples[number].source.encode()[: corpus.max_bytes])
                soft = model.trained.adapter(made.arm.encoder(torch.tensor([text])))
                loud = soft * (table_rms(model.lm.table) / soft.square().mean().sqrt())
                answer = layout.answer(corpus.examples[number].answer)
                before, anchor, said = (
                    model.lm.table[torch.tensor(ids)][None]
                    for ids in (layout.before, layout.anchor_ids, answer)
                )
                hidden = reference(torch.cat((before, loud, anchor, said), 1), model.trained.deep(soft))
                log_p = (hidden[0] @ model.lm.table.T).log_softmax(-1)
                nll -= sum(log_p[layout.prefix - 1 + j, token].item() for j, token in enumerate(answer))
                tokens += len(answer)
            found[first] = nll / tokens
    reported = made._probe_gradient()["terms"][0].item()
    assert reported == pytest.approx(found[layout.latents], rel=1e-9)
    assert reported != pytest.approx(found[0], rel=1e-6)
