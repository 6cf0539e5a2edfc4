"""How fast pairs of entries turn, by the rules of those who stretch wavelengths, and what turning does."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from perfsweep.workloads.latentwire.maths.rotary import loudness, rotate, rotations
from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn

LM = LMConfig(11, 8, 1, 1, 1, head_dim=8, d_ff=4, rope_theta=1e4)
PLAIN = [1.0, 0.1, 0.01, 0.001]


def speeds(scaling: RopeScaling | LinearRope | Yarn | None) -> list[float]:
    return rotations(dataclasses.replace(LM, rope_scaling=scaling)).tolist()


def test_speeds_fall_from_one_towards_one_over_theta() -> None:
    assert speeds(None) == pytest.approx(PLAIN)
    assert speeds(LinearRope(4.0)) == pytest.approx([speed / 4 for speed in PLAIN])


def test_llamas_rule_leaves_short_wavelengths_divides_long_ones_and_blends_between() -> None:
    # Turns in 2 pi 100 positions: 100, 10, 1 and 0.1; between 2 and 20 they are blended.
    original: int = 628
    turns = [original * speed / (2 * math.pi) for speed in PLAIN]
    share = (turns[1] - 2) / 18
    expected = [1.0, 0.1 * (share + (1 - share) / 5), 0.01 / 5, 0.001 / 5]
    assert speeds(RopeScaling(5.0, 2.0, 20.0, original)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("whole", "first", "last"),
    # In 628 positions pair 4 ln(628 / 62.8..) / ln 10000 turns 10 times: a bit less than the first.
    [(True, 0, 2), (False, 4 * math.log(628 / (20 * math.pi)) / math.log(1e4), None)],
)
def test_yarns_rule_leaves_pairs_that_turn_often(whole: bool, first: float, last: float | None) -> None:
    last = 4 * math.log(628 / (2 * math.pi)) / math.log(1e4) if last is None else last
    divided = [min(max((pair - first) / (last - first), 0), 1) for pair in range(4)]
    expected = [speed * (1 - d) + speed / 5 * d for speed, d in zip(PLAIN, divided, strict=True)]
    assert speeds(Yarn(5.0, 628, fast=10.0, slow=1.0, whole=whole)) == pytest.approx(expected)


def test_yarns_ends_stay_within_the_head_and_apart() -> None:
    # All pairs turn between slow and fast: the blend goes from the first pair to the head's width less one.
    blended = [speed * (1 - pair / 7) + speed / 5 * pair / 7 for pair, speed in enumerate(PLAIN)]
    assert speeds(Yarn(5.0, 628, fast=1e9, slow=1e-9)) == pytest.approx(blended)
    at = Yarn(5.0, 628, fast=3.0, slow=3.0, whole=False)
    assert speeds(at) == pytest.approx([1.0, 0.1, 0.01 / 5, 0.001 / 5])


def test_yarn_alone_is_loud() -> None:
    assert loudness(LM) == 1.0
    assert loudness(dataclasses.replace(LM, rope_scaling=LinearRope(2.0))) == 1.0
    assert loudness(dataclasses.replace(LM, rope_scaling=Yarn(2.0, 8, loudness=1.25))) == 1.25


def test_an_entry_and_the_one_half_a_head_further_on_are_turned_together() -> None:
    x = torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])
    angle = torch.tensor([0.5, 1.0, 0.5, 1.0], dtype=torch.float64)
    turned = [
        complex(1, 3) * complex(math.cos(0.5), math.sin(0.5)),
        complex(2, 4) * complex(math.cos(1), math.sin(1)),
    ]
    found = rotate(x, angle.cos(), angle.sin())
    assert found.dtype == x.dtype
    assert found.flatten().tolist() == pytest.approx([z.real for z in turned] + [z.imag for z in turned])
