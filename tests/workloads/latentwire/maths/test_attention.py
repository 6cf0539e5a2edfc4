"""Which keys queries may see, and that every kernel computes softmax attention."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.latentwire.maths.attention import Allowed, eager, flash, sdpa


def rows(text: str) -> list[list[bool]]:
    return [[letter == "x" for letter in line] for line in text.split()]


def by_definition(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    heads = []
    for head in range(q.shape[1]):
        group = head // (q.shape[1] // k.shape[1])
        scores = q[:, head] @ k[:, group].transpose(1, 2) / math.sqrt(q.shape[-1])
        heads.append(scores.masked_fill(~seen, -math.inf).softmax(-1) @ v[:, group])
    return torch.cat(heads, dim=-1)


@pytest.mark.parametrize("attend", [eager, sdpa, flash])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", ["causal", "masked", "everything"])
def test_heads_share_keys_and_stand_side_by_side(attend, groups: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 4, 3, 4, generator=generator, dtype=torch.float64)
    k, v = (torch.randn(2, groups, 3, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = torch.tensor(rows("x.x xx. xxx"))
    allowed, seen = {
        "causal": (Allowed(causal=True), torch.ones(3, 3, dtype=torch.bool).tril()),
        "masked": (Allowed(mask), mask),
        "everything": (Allowed(), torch.ones(3, 3, dtype=torch.bool)),
    }[kind]
    assert torch.allclose(attend(q, k, v, allowed), by_definition(q, k, v, seen))


def test_sixteen_bits_are_multiplied_in_single_precision_on_hosts() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 3, 4, generator=generator).bfloat16() for _ in range(3))
    found = sdpa(q, k, v, Allowed(causal=True))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, sdpa(q.float(), k.float(), v.float(), Allowed(causal=True)).bfloat16())
