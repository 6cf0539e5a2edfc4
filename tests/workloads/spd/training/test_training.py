"""The loop: pieces of a batch, resuming, saving, logging, evaluating, and the target that it all is about."""

# Drives `reference` and `workload` of perfsweep.workloads.spd.
from __future__ import annotations

import math

import pytest
import torch
from gradients_apart import worst
from tiers import longer

from perfsweep.workloads.spd import named_files
from perfsweep.workloads.spd.training.loop import DivergedError
from perfsweep.workloads.spd.variants import host_work
from perfsweep.workloads.spd.workload import COUNTED, Spd

QUIET = {
    "modules": ["layers.0.attn.q", "layers.1.mlp.fc"],
    "components": 12,
    "seq_len": 8,
    "log_every": 1000,
    "eval_every": 1000,
    "save_every": 1000,
}


@pytest.mark.parametrize("pieces", [4, *longer(2)])
@pytest.mark.parametrize(
    "levels", [{}, {"delta": "folded", "stack_modules": "stacked"}], ids=["naive", "folded"]
)
def test_pieces_of_a_batch_add_up_to_the_whole(gradients_of, pieces, levels) -> None:
    # With the same masks, and a minimality without its log term, every loss is a mean over positions.
    config = {
        **QUIET,
        "dtype": "float64",
        "frozen_draws": True,
        "microbatches": pieces,
        "pgd_scope": "datapoint",
        "pgd_steps": 0,
    }
    loop = gradients_of(config=config, micro_batch="loop", **levels)
    whole = gradients_of(config=config, micro_batch="whole", **levels)
    assert worst(loop, whole) <= 1e-12


@pytest.mark.parametrize(
    "levels",
    [
        {},
        {
            "delta": "folded",
            "stack_modules": "stacked",
            "optimizer": "fused",
            "loader": "memmap_batched",
            "checkpoint": "async",
        },
        {"pgd_steps": "persistent"},
    ],
    ids=["naive", "fast", "persistent"],
)
def test_a_resumed_training_is_the_uninterrupted_one_to_the_bit(start, run, levels) -> None:
    config = {**QUIET, "save_every": 2, "pgd_steps": 1}
    whole = start(config=config, **levels)
    run(whole, 4)
    first = start(config=config, **levels)
    run(first, 2)
    first.counters()  # flushes the writer
    file = first.context.scratch_dir / "checkpoint.pt"
    second = start(config={**config, "resume": str(file)}, **levels)
    run(second, 2)
    expected, found = whole.arm.decomposition.state(), second.arm.decomposition.state()
    assert second.arm.step == 4
    assert all(torch.equal(found[name], value) for name, value in expected.items())


STACKED = {"delta": "folded", "stack_modules": "stacked"}
KEPT = {"pgd_steps": "persistent"}
TERM = {"persistent_pgd": 1.0}


@pytest.mark.parametrize(
    ("one", "other", "losses"),
    [
        ({}, STACKED, TERM),
        (KEPT, {**STACKED, **KEPT}, {}),
        ({}, KEPT, {}),
        (KEPT, {"optimizer": "fused"}, {}),
    ],
)
def test_a_training_goes_on_at_other_levels_from_where_it_was(start, run, one, other, losses) -> None:
    """Values, moments and kept sources follow their modules."""
    config = {**QUIET, "save_every": 2, "pgd_steps": 1, **({"coefficients": losses} if losses else {})}
    whole = start(config=config, **one)
    run(whole, 2)
    whole.counters()  # flushes the writer
    again = start(config={**config, "resume": str(whole.context.scratch_dir / "checkpoint.pt")}, **other)
    expected, found = (portable(workload.arm.state()) for workload in (whole, again))
    assert all(torch.equal(found[name], value) for name, value in expected.items() if name in found)
    assert len(expected.keys() - found.keys()) == 0 or (one, other) == (KEPT, {"optimizer": "fused"})
    assert any(name.startswith("/optimizer/exp_avg/") and value.any() for name, value in found.items())
    run(again, 1)
    assert again.arm.step == 3


def portable(state, at: str = "") -> dict[str, torch.Tensor]:
    """Tensors and numbers of values, optimiser and sources, by where they are."""
    if isinstance(state, dict):
        kept = state if at else {name: state[name] for name in ("values", "optimizer", "sources")}
        return {name: t for key, part in kept.items() for name, t in portable(part, f"{at}/{key}").items()}
    if isinstance(state, tuple):
        return portable(dict(enumerate(state)), at)
    return {at: torch.as_tensor(state).detach().clone()}


@pytest.mark.parametrize("check", ["sync", "off"])
def test_values_that_are_no_numbers_end_the_training_by_step_and_loss_whatever_checks_masks(
    start, run, check
) -> None:
    workload: Spd = start(config=QUIET, mask_checks=check)
    run(workload, 1)
    assert set(COUNTED) < workload.counters().keys() and workload.counters()["iterations"] == 1
    with torch.no_grad():
        workload.arm.decomposition.component_parameters()[0].fill_(math.nan)
    with pytest.raises(DivergedError, match=r"train/loss/\w+ is nan at step 1: the training has diverged"):
        run(workload, 1)


def test_losses_that_nobody_has_read_are_read_before_they_are_judged(start, run) -> None:
    workload = start(config=QUIET, metrics="deferred", kind="evidence")
    assert isinstance(workload.arm, host_work.DeferredMetrics)
    run(workload, 1)
    workload.numbers()
    with torch.no_grad():
        workload.arm.decomposition.component_parameters()[0].fill_(math.nan)
    run(workload, 2)
    with pytest.raises(
        DivergedError, match=r"train/loss/\w+ is nan at step 3 \(.* those of step 1 were numbers\)"
    ):
        workload.numbers()


@pytest.mark.parametrize("log_every", [1, 100])
def test_a_diverged_training_leaves_the_last_good_checkpoint(start, run, log_every) -> None:
    workload = start(config={**QUIET, "log_every": log_every, "save_every": 1}, metrics="deferred")
    run(workload, 2)
    file = workload.context.scratch_dir / "checkpoint.pt"
    kept = named_files.read(file)["step"]
    with torch.no_grad():
        workload.arm.decomposition.component_parameters()[0].fill_(math.nan)
    with pytest.raises(DivergedError):
        run(workload, 1)
    assert named_files.read(file)["step"] == kept == 2


def test_deferred_and_eager_metrics_log_the_same_rows(start, run) -> None:
    rows: dict[str, list] = {}
    for level in ("every_step_item", "deferred"):
        rows[level] = []
        run(start(config={**QUIET, "log_every": 2}, metrics=level, log=rows[level].append), 4)
    for eager, deferred in zip(*rows.values(), strict=True):
        assert eager.keys() == deferred.keys()
        same = [name for name in eager if not name.startswith("perf/")]
        assert [eager[name] for name in same] == pytest.approx([deferred[name] for name in same], rel=1e-6)


@pytest.mark.workloads
def test_evaluating_changes_no_later_training(start, run) -> None:
    curves = []
    for period in (1000, 1):
        workload = start(config={**QUIET, "eval_every": period})
        run(workload, 3)
        curves.append(workload.arm.total.item())
    assert curves[0] == curves[1]
