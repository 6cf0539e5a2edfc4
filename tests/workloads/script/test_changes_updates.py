"""Which implementation of an update the optimisers of a script are made with."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch
from torch.optim import SGD, Adagrad, AdamW, Optimizer

from perfsweep.workloads.script.call_sites import CallSites
from perfsweep.workloads.script.changes.update_options import UpdateOptions


def made(kind: type[Optimizer], level: str, **asked: bool) -> tuple[Optimizer, UpdateOptions]:
    """An optimiser that a script makes under a level, and what was seen of it."""
    options = UpdateOptions()
    options.level = level
    with ExitStack() as undo:
        options.watch(undo, CallSites())
        return kind([torch.zeros(2, requires_grad=True)], **asked), options


# AdamW makes itself by Adam's constructor.
@pytest.mark.parametrize("kind", [SGD, AdamW, Adagrad])
@pytest.mark.parametrize("level", ["foreach", "fused"])
def test_every_optimiser_is_made_with_the_level(kind, level: str) -> None:
    optimiser, seen = made(kind, level)
    assert optimiser.defaults[level] is True
    assert not seen.asked


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_what_a_script_asks_for_itself_is_seen_and_given_way_to_the_level(kind) -> None:
    optimiser, seen = made(kind, "fused", foreach=True)
    assert seen.asked == {"foreach"}
    assert optimiser.defaults["fused"] is True and optimiser.defaults["foreach"] is False


def test_an_optimiser_without_the_implementation_is_left_as_it_is() -> None:
    optimiser, _ = made(torch.optim.Rprop, "fused")
    assert optimiser.defaults["foreach"] is None, "as where nobody asks"


def test_afterwards_optimisers_are_made_as_ever() -> None:
    made(SGD, "fused")
    assert not SGD([torch.zeros(2, requires_grad=True)]).defaults["fused"]
