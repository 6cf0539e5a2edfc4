"""From gradients to weights: norm, clip, skips, loss scale and rate."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from bare_arms import bare
from torch import nn

from perfsweep.workloads.latentwire.training.updates import schedule
from perfsweep.workloads.latentwire.variants.precision import GROWTH_INTERVAL

TOTAL = 3


@pytest.mark.parametrize(
    ("step", "total", "share"), [(0, 11, 1.0), (5, 11, 0.51), (10, 11, 0.02), (99, 11, 0.02), (0, 1, 1.0)]
)
def test_the_rate_is_a_cosine_to_two_per_cent_on_the_last_step(step: int, total: int, share: float) -> None:
    assert schedule(step, total) == pytest.approx(share)


def updates(level: str = "default", chatty: bool = False, scaled: bool = False, **changed: Any) -> Any:
    """An arm that updates two parameters."""
    levels = {"optimizer": level, "sync": "chatty" if chatty else "late", "amp": "fp16" if scaled else "off"}
    config = {"lr": 0.1, "weight_decay": 0.0, "clip": 1.0, **changed}
    made = bare(levels, **config)
    made.optimise({"one": [nn.Parameter(torch.zeros(2))], "two": [nn.Parameter(torch.zeros(1))]}, TOTAL)
    return made


def give(made: Any, *values: float) -> None:
    flat = torch.tensor(values) * made.loss_scale
    made.groups["one"][0].grad, made.groups["two"][0].grad = flat[:2].clone(), flat[2:].clone()


@pytest.mark.parametrize("level", ["default", "foreach", "fused"])
@pytest.mark.parametrize("chatty", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_norm_is_that_of_all_groups_before_clipping(level: str, chatty: bool, scaled: bool) -> None:
    made = updates(level, chatty=chatty, scaled=scaled, clip=0.5)
    give(made, 1.0, 2.0, -2.0)
    assert float(made.apply()) == pytest.approx(3.0)
    assert all(parameter.grad is None for parameter in made.parameters)
    state = made.optimizer.state[made.parameters[0]]
    # AdamW's average of gradients: a tenth of what was clipped.
    assert state["exp_avg"].tolist() == pytest.approx([0.1 * 0.5 / 3, 0.1 * 1.0 / 3], rel=1e-4)
    assert made.parameters[0].tolist() == pytest.approx([-0.1, -0.1], rel=1e-4)
    assert made.updates == 1
    read = {(False, True): 0, (False, False): 1, (True, True): 5, (True, False): 5}
    assert made.counts["syncs"] == read[chatty, level == "fused"]


@pytest.mark.parametrize("level", ["default", "fused"])
@pytest.mark.parametrize("chatty", [False, True])
@pytest.mark.parametrize("broken", [math.inf, math.nan])
def test_a_gradient_that_is_no_number_changes_nothing_and_is_counted(
    level: str, chatty: bool, broken: float
) -> None:
    made = updates(level, chatty=chatty)
    give(made, 1.0, broken, 1.0)
    assert not math.isfinite(float(made.apply()))
    assert float(made.skipped) == 1
    assert made.parameters[0].tolist() == [0, 0]
    give(made, 1.0, 1.0, 1.0)
    made.apply()
    assert float(made.skipped) == 1
    assert made.parameters[0].tolist() != [0, 0]
    assert made.updates == 2  # the schedule goes on


def test_an_overflow_halves_the_loss_scale_and_two_thousand_good_steps_double_it() -> None:
    made = updates(scaled=True)
    assert float(made.loss_scale) == 2.0**16
    give(made, math.inf, 0.0, 0.0)
    made.apply()
    assert float(made.loss_scale) == 2.0**15
    made.good = torch.tensor(float(GROWTH_INTERVAL - 2))
    for expected in (2.0**15, 2.0**16, 2.0**16):
        give(made, 1.0, 0.0, 0.0)
        made.apply()
        assert float(made.loss_scale) == expected
    assert GROWTH_INTERVAL == 2000
    unscaled = updates()
    assert float(unscaled.loss_scale) == 1.0


def test_a_training_goes_on_where_its_state_was_taken() -> None:
    first, second = updates(scaled=True), updates(scaled=True)
    give(first, math.inf, 0.0, 0.0)
    first.apply()
    give(first, 1.0, 2.0, 3.0)
    first.apply()
    second.load_updates(first.updates_state())
    assert second.updates == 2
    assert float(second.loss_scale) == 2.0**15
    assert (float(second.skipped), float(second.good)) == (1, 1)
    moments = second.optimizer.state[second.parameters[1]]["exp_avg"]
    assert torch.equal(moments, first.optimizer.state[first.parameters[1]]["exp_avg"])


def test_each_step_has_the_rate_of_the_schedule() -> None:
    made = updates()
    for share in (1.0, 0.51, 0.02, 0.02):
        give(made, 1.0, 1.0, 1.0)
        made.apply()
        assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * share)
