"""Toggles of a plain training: what is judged of one that saves, and what a workload may say of its own."""

from __future__ import annotations

import pytest
import torch
from declared import described, lines

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


def test_no_level_may_miss_a_loss_by_a_tenth() -> None:
    for level in (level for toggle in shared_toggles(*NAMES) for level in toggle.levels):
        bounds = dict(level.bounds)
        assert all(bound < 0.1 for bound in bounds.values()), level
        tenth = evidence(0.0)
        tenth.tensors["losses"] *= 1.1
        found = judge(evidence(0.0), tenth, CHECKS, level.parity, bounds)
        assert found.verdict is ParityVerdict.DIFFERENT or level.parity is Parity.STOCHASTIC, level


DECLARED = """
amp off: bf16/fp16 (low_precision_ops tolerance losses<0.02 first_gradient<0.05 parameters<0.03 replay/*<0.05
  told)
tf32 off: on (tf32_iterations tolerance losses<0.005 first_gradient<0.01 parameters<0.01 replay/*<0.01 on gpu
  told)
compile off: default (compiled_graphs on old+gpu+cpu told), reduce_overhead (compiled_graphs zero_grad=none
  micro_batch=all on old+gpu told)
pin_memory off: on (pinned_batches on old+gpu told)
num_workers 0 told, any integer from 0 to 64 worker_batches told: 2/4 (worker_batches told)
non_blocking off: on (unwaited_copies pin_memory=on on old+gpu told)
prefetch off: stream (prefetched_batches on old+gpu told)
micro_batch all told, any integer from 1 micro_steps told: 16 (micro_steps told)
optimizer default: foreach/fused (ops told)
zero_grad zero: none (ops told)
grad_checkpointing off: on (saved_bytes told)
gc each_eval, owns_collector: rarely/frozen (uncollected_evaluations told)
checkpoint sync: async (background_saves told)
wandb_logging buffered: each (wandb_calls commits 1), commit_false (wandb_calls commits 50)
ddp off, any integer from 2 ranks on cpu+bare: on (ranks on cpu+bare)
ddp_weak off, any integer from 2 ranks stochastic on cpu+bare refused: on (ranks stochastic on cpu+bare
  refused)
"""
"""Baseline and section, then each level: its witness, class and bounds, what it needs and excludes."""


def test_every_level_declares_what_it_changes_and_what_it_needs() -> None:
    assert list(described(shared_toggles(*NAMES))) == lines(DECLARED)
