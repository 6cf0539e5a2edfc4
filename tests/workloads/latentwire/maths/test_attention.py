"""Which keys queries may see, and that every kernel computes softmax attention."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.latentwire.maths.attention import Allowed, Mask, eager, flash, sdpa

CPU = torch.device("cpu")


def rows(text: str) -> list[list[bool]]:
    return [[letter == "x" for letter in line] for line in text.split()]


@pytest.mark.parametrize(
    ("past", "asked", "expected"),
    [
        (2, None, "xxx.. xxxx. xxxxx"),
        (0, slice(1, None), "xx. xxx"),
        (0, slice(0, 2), "x.. xx."),
        (1, slice(1, 3), "xxx. xxxx"),
        (0, slice(None), "x.. xx. xxx"),
    ],
)
def test_a_query_sees_all_keys_up_to_its_own_position(past: int, asked: slice | None, expected: str) -> None:
    found = Mask(past).allowed(3, CPU, asked)
    assert found.mask is not None and found.mask.tolist() == rows(expected)
    assert not found.causal


def test_queries_may_be_asked_at_other_positions_in_each_row() -> None:
    found = Mask(1).allowed(3, CPU, torch.tensor([[0, 2], [1, 1]]))
    assert found.mask is not None
    assert found.mask[:, 0].tolist() == [rows("xx.. xxxx"), rows("xxx. xxx.")]


@pytest.mark.parametrize("past", [0, 3])
def test_one_query_at_the_end_sees_everything(past: int) -> None:
    assert Mask(past).allowed(3, CPU, slice(2, None)) == Allowed()
    assert Mask(past).allowed(1, CPU) == (Allowed(causal=True) if past == 0 else Allowed())


def test_whole_rows_are_in_causal_order_and_what_is_visible_may_be_said_outright() -> None:
    assert Mask().allowed(3, CPU) == Allowed(causal=True)
    visible = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    assert Mask(visible=visible).allowed(3, CPU).mask is visible


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
