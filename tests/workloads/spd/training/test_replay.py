"""One iteration of an arm, from a state of the naive path, gives the optimiser the naive gradients."""

# Drives `updates` of perfsweep.workloads.spd.training and `loading` of perfsweep.workloads.spd.data.
from __future__ import annotations

from typing import Any

import torch

from perfsweep.pipelines.trial import untimed
from perfsweep.workloads.api import NullClock

# No faithfulness term: its weight would hide mistakes of all others in a gradient as a whole.
TOY = {"preset": "tms_5-2_test", "batch_size": 32, "log_every": 1000, "eval_every": 1000, "save_every": 1000}


def replayed(start, states, record_first: bool = False, **levels: Any) -> dict[str, torch.Tensor]:
    """Gradients of the kept iterations, recorded by the naive path or repeated by an arm."""
    workload = start(config=TOY, kind="evidence", **levels)
    training = workload.replayable()
    assert training is not None

    def step() -> None:
        workload.step(NullClock())

    found = (
        untimed.keep_states(training, 3, step, states)
        if record_first
        else untimed.replay(training, step, states)
    )
    return found.tensors


def test_single_iterations_are_replayed_from_the_naive_states(start, tmp_path) -> None:
    reference = replayed(start, tmp_path / "states", record_first=True)
    arm = replayed(start, tmp_path / "states", delta="folded", optimizer="fused", loader="memmap_batched")
    assert arm.keys() == reference.keys()
    assert len(arm) == 3
    for name, gradients in reference.items():
        assert ((arm[name] - gradients).norm() / gradients.norm()).item() <= 1e-5


def test_a_mistake_shows_in_a_replayed_iteration(start, tmp_path, monkeypatch) -> None:
    reference = replayed(start, tmp_path / "states", record_first=True)
    monkeypatch.setattr(
        "perfsweep.workloads.spd.maths.masked_products.folded", lambda x, y, site, operands, mask, unmasked: y
    )
    arm = replayed(start, tmp_path / "states", delta="folded")
    assert ((arm["replay/0"] - reference["replay/0"]).norm() / reference["replay/0"].norm()).item() > 1e-3


def test_a_training_that_searches_is_not_replayed(start) -> None:
    # A search follows signs, and rounding flips some of them.
    assert start(config={"pgd_steps": 1}, kind="evidence").replayable() is None


def test_stacked_parameters_are_not_compared_with_single_ones(start, tmp_path) -> None:
    replayed(start, tmp_path / "states", record_first=True)
    assert replayed(start, tmp_path / "states", stack_modules="stacked") == {}
