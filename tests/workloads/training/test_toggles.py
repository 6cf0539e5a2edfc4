"""Toggles of a plain training: what is judged of one that saves, and what a workload may say of its own."""

from __future__ import annotations

import pytest
import torch

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Evidence, Parity
from perfsweep.workloads.training.toggles import CHECKS, NAMES, ON_REQUEST, SAVED, shared_toggles


def evidence(error: float) -> Evidence:
    tensors = {check.name: torch.ones(3) for check in CHECKS}
    return Evidence(tensors, {"checkpoint_error": error})


@pytest.mark.parametrize(("error", "fine"), [(0.0, True), (1e-12, False), (float("nan"), False)])
def test_a_checkpoint_holds_every_bit_of_its_moment_however_loose_the_arm(error: float, fine: bool) -> None:
    found = judge(evidence(0.0), evidence(error), (*CHECKS, SAVED), Parity.TOLERANCE, {})
    assert (found.verdict is not ParityVerdict.DIFFERENT) == fine


def test_where_no_name_is_given_all_come_that_need_nothing_else() -> None:
    names = [toggle.name for toggle in shared_toggles()]
    assert names == [name for name in NAMES if name not in ON_REQUEST] and set(ON_REQUEST) < set(NAMES)
    assert [toggle.name for toggle in shared_toggles("gc", "amp")] == ["gc", "amp"]


def test_a_workload_adds_to_what_a_toggle_has_and_names_sizes_of_its_own() -> None:
    amp, sizes, workers = shared_toggles(
        "amp",
        "micro_batch",
        "num_workers",
        amp={"keep": ("off", "bf16"), "every": {"bounds": {"losses": 0.5}}},
        micro_batch={"levels": ("all", 4, 2)},
        num_workers={"levels": (0, 1)},
    )
    assert [level.value for level in amp.levels] == ["off", "bf16"]
    assert (amp.levels[1].bounds, amp.levels[1].witness) == ({"losses": 0.5}, "low_precision_ops")
    assert [level.value for level in sizes.levels] == ["all", 4, 2] and sizes.levels[
        1
    ].witness == "micro_steps"
    assert [level.value for level in workers.levels] == [0, 1]
    assert [level.value for level in shared_toggles("micro_batch")[0].levels] == ["all", 16]


WITNESSES = (
    "amp=low_precision_ops tf32=tf32_iterations compile=compiled_graphs pin_memory=pinned_batches"
    " num_workers=worker_batches non_blocking=unwaited_copies prefetch=prefetched_batches"
    " micro_batch=micro_steps optimizer=ops zero_grad=ops grad_checkpointing=saved_bytes"
    " gc=uncollected_evaluations checkpoint=background_saves wandb_logging=wandb_calls ddp=ranks"
    " ddp_weak=ranks"
)


def test_each_toggle_has_a_witness_and_those_that_round_have_bounds() -> None:
    toggles = shared_toggles(*NAMES)
    found = {(toggle.name, level.witness) for toggle in toggles for level in toggle.levels[1:]}
    assert found == {tuple(one.split("=")) for one in WITNESSES.split()}
    bounds = {
        level.value: dict(level.bounds) for toggle in toggles for level in toggle.levels if level.bounds
    }
    names = ("losses", "first_gradient", "parameters", "replay/*")
    sixteen = dict(zip(names, (0.02, 0.05, 0.03, 0.05), strict=True))
    tf32 = dict(zip(names, (0.005, 0.01, 0.01, 0.01), strict=True))
    assert bounds == {"bf16": sixteen, "fp16": sixteen, "on": tf32}


def test_no_level_may_miss_a_loss_by_a_tenth() -> None:
    for level in (level for toggle in shared_toggles(*NAMES) for level in toggle.levels):
        bounds = dict(level.bounds)
        assert all(bound < 0.1 for bound in bounds.values()), level
        tenth = evidence(0.0)
        tenth.tensors["losses"] *= 1.1
        found = judge(evidence(0.0), tenth, CHECKS, level.parity, bounds)
        assert found.verdict is ParityVerdict.DIFFERENT or level.parity is Parity.STOCHASTIC, level


def test_graphs_need_gradients_that_are_dropped_and_batches_that_are_whole() -> None:
    (compiled,) = shared_toggles("compile")
    levels = {level.value: level for level in compiled.levels}
    assert levels["reduce_overhead"].requires == {"zero_grad": ("none",), "micro_batch": ("all",)}
    assert not levels["default"].requires
