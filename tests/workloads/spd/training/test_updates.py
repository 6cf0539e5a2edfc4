"""The optimiser's state in a form that CUDA graphs can replay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from workloads.spd.presets import PRESETS
from workloads.spd.training.updates import Updates


def updates(capturable: bool) -> Updates:
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))
    return Updates(PRESETS["lm_test"], [one], [other], "default", capturable)


@pytest.mark.parametrize("capturable", [False, True])
def test_the_schedule_goes_on_after_a_checkpoint_was_loaded(capturable: bool) -> None:
    made = updates(capturable)
    made.load(updates(capturable).state())
    wanted = [made.schedule(step) for step in (0, 3)]
    assert wanted[0] != wanted[1]
    for group in made.optimizer.param_groups:
        assert float(group["lr"]) == pytest.approx(wanted[1])
