"""Rows of the log, read at once or together, and losses that are no numbers."""

from __future__ import annotations

import math

import pytest
import torch

from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.spd.training.metrics import DivergedError, needed
from perfsweep.workloads.spd.variants.host_work import DeferredMetrics

LOWER = {("a", "b"): torch.tensor([[[0.0, 0.1, 0.2], [1.0, 1.0, 0.3]], [[0.0, 0.0, 0.0], [0.0, 0.5, 0.0]]])}
LOSSES = {"pgd": torch.tensor(2.0), "total": torch.tensor(3.0, dtype=torch.float64)}
BROKEN = {"pgd": torch.tensor(2.0), "total": torch.tensor(math.nan)}


def test_components_above_a_tenth_are_needed() -> None:
    assert {name: float(count) for name, count in needed(LOWER).items()} == {"a": 2.0, "b": 0.5}


class Deferred(DeferredMetrics, Reference):  # type: ignore[misc]
    """An arm that reads metrics when they are logged."""


def at(step: int, kind: type[Reference] = Deferred) -> Reference:
    """An arm in an iteration, of which nothing else is made."""
    arm = object.__new__(kind)
    arm.step = step
    return arm


@pytest.mark.parametrize("kind", [Reference, Deferred])
def test_a_row_names_losses_counts_and_what_is_added(kind: type[Reference]) -> None:
    arm = at(4, kind)
    arm.observe({"pgd": torch.tensor(9.0)}, {("a",): torch.zeros(1, 1)})
    arm.step = 5
    arm.observe(LOSSES, LOWER)
    arm.check_losses()
    assert arm.row({"train/grad_norms/components": torch.tensor(0.5)}) == {
        "train/loss/pgd": 2.0,
        "train/loss/total": 3.0,
        "train/l0/a": 2.0,
        "train/l0/b": 0.5,
        "train/grad_norms/components": 0.5,
    }


REMEDY = "the training has diverged; lower workload.lr and continue from the last checkpoint"


def test_the_eager_log_stops_in_the_step_itself() -> None:
    with pytest.raises(DivergedError, match=rf"^train/loss/total is nan at step 7: {REMEDY}"):
        at(7, Reference).observe(BROKEN, LOWER)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_the_deferred_log_says_when_losses_were_numbers(value: float) -> None:
    arm = at(7)
    arm.observe({"total": torch.tensor(value)}, LOWER)
    with pytest.raises(DivergedError, match=r"at step 7 \(losses are read .* before, none had been read\): "):
        arm.check_losses()
    arm.step = 8
    arm.observe(LOSSES, LOWER)
    arm.check_losses()
    arm.step = 9
    arm.observe({"total": torch.tensor(value)}, LOWER)
    with pytest.raises(DivergedError, match=r"at step 9 .* before, those of step 8 were numbers\): "):
        arm.row({})


def test_before_the_first_iteration_there_is_nothing_to_check() -> None:
    at(0).check_losses()


def test_counts_and_norms_that_are_no_numbers_are_written_as_they_are() -> None:
    arm = at(1)
    arm.observe(LOSSES, LOWER)
    norm = "train/grad_norms/components"
    assert arm.row({norm: torch.tensor(math.inf)})[norm] == math.inf
