"""The optimiser's state in a form that CUDA graphs can replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from perfsweep.workloads.spd.presets import PRESETS
from perfsweep.workloads.spd.training.updates import Updates


def updates(capturable: bool) -> Updates:
    one, other = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(1))
    return Updates(PRESETS["lm_test"], [one], [other], "default", capturable)


def named(made: Updates, of: Callable[[nn.Parameter], torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: of(one) for name, (one,) in made.groups.items()}


@pytest.mark.parametrize("capturable", [False, True])
def test_the_schedule_goes_on_after_a_checkpoint_was_loaded(capturable: bool) -> None:
    made = updates(capturable)
    made.load(updates(capturable).state(partial(named, updates(capturable))), partial(named, made))
    wanted = [made.schedule(step) for step in (0, 3)]
    assert wanted[0] != wanted[1]
    for group in made.optimizer.param_groups:
        assert float(group["lr"]) == pytest.approx(wanted[1])


def clipped(components: float | None, importance: float | None, amp: str = "off") -> Updates:
    recipe = replace(PRESETS["lm_test"], clip_components=components, clip_importance=importance, lr=0.1)
    one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    made = Updates(recipe, [one], [other], "default", amp=amp)
    made.zero()
    made.backward(3 * one[0] + 4 * one[1] + 2 * other.sum())
    return made


@pytest.mark.parametrize("amp", ["off", "fp16"])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ((None, None), [3.0, 4.0, 2.0]),
        ((2.5, None), [1.5, 2.0, 2.0]),
        ((None, 1.0), [3.0, 4.0, 1.0]),
        ((9.0, 9.0), [3.0, 4.0, 2.0]),
    ],
)
def test_each_group_is_clipped_by_itself_after_it_was_unscaled(
    limits: tuple[float | None, float | None], expected: list[float], amp: str
) -> None:
    made = clipped(*limits, amp=amp)
    made.apply()
    # AdamW's averages are a tenth of the gradients.
    moments = [made.optimizer.state[group[0]]["exp_avg"] for group in made.groups.values()]
    assert (10 * torch.cat(moments)).tolist() == pytest.approx(expected, rel=1e-4)
    norms = made.gradient_norms()
    assert {name: float(norm) for name, norm in norms.items()} == pytest.approx(
        {
            "train/grad_norms/components": 5.0 if limits[0] else float(torch.tensor(expected[:2]).norm()),
            "train/grad_norms/importance": 2.0 if limits[1] else expected[2],
        }
    )
