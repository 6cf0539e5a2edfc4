"""Every level that this machine can run moves the counter it names, and the baseline moves none.

An arm is compared with the nearest arm that has the toggle at its baseline: the levels that a level requires
stand in both. Were the level's path taken away, the two would be the same training and their counters equal.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.trial.counters import Counting
from perfsweep.workloads.api import Device, NullClock
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants import TOGGLES
from perfsweep.workloads.spd.workload import Spd

pytestmark = pytest.mark.workloads

HERE = Device(type="cpu", cores=2, compiler=True)
GENERIC = {"ops", "host_reads", "flops", "saved_bytes", "low_precision_ops"}
PIPELINE = {"wandb_calls", "wandb_commits", "compiled_graphs"}
FEW = ["layers.*.attn.q", "layers.*.mlp.fc"]
SMALL: dict[str, Any] = {
    "modules": FEW,
    "batch_size": 2,
    "seq_len": 8,
    "components": 8,
    "log_every": 1000,
    "eval_every": 1000,
    "save_every": 1000,
}
TOY = {"preset": "tms_5-2_test", "log_every": 1000, "eval_every": 1000, "save_every": 1000}
PERIODIC = {**SMALL, "log_every": 2, "eval_every": 2, "save_every": 2}

ONE_STEP = {**SMALL, "pgd_steps": 1}

# Where a level acts: another configuration than ONE_STEP, and more iterations.
CONFIGS: dict[tuple[str, Any], dict[str, Any]] = {
    **{("gc", level): PERIODIC for level in ("rarely", "frozen", "oom_only")},
    ("checkpoint", "async"): PERIODIC,
    ("pgd_layerwise", "single"): {**SMALL, "losses": "layerwise", "modules": ["layers.*.attn.o"]},
    ("prefix_reuse", "on"): {**SMALL, "losses": "layerwise", "modules": ["layers.*.attn.o"]},
    ("unmasked_form", "fused"): {**SMALL, "losses": "forward"},
    ("micro_batch", "whole"): {**SMALL, "microbatches": 2, "pgd_scope": "datapoint"},
    ("pgd_inner", "detached"): SMALL,
    **{("pgd_steps", level): SMALL for level in ("schedule", "larger", "every_k", "persistent")},
    **{("gradients", level): {**TOY, "batch_size": 8} for level in ("formulas", "native")},
}
ITERATIONS = {("profiler", "torch"): 6, ("pgd_steps", "every_k"): 2}
ELSEWHERE = {
    ("num_workers", 4),  # the same path as with two
    ("num_workers", 8),
}


def levels_that_act() -> list[Any]:
    found = []
    for toggle in TOGGLES:
        for level in toggle.levels[1:]:
            here = level.unsupported(HERE) is None and (toggle.name, level.value) not in ELSEWHERE
            if here and level.witness not in PIPELINE:
                name = f"{toggle.name}={level.value}"
                found.append(pytest.param(toggle.name, level.value, str(level.witness), id=name))
    return found


@pytest.fixture
def counters_of(start):
    """All counters after some iterations: the pipelines' after a first one, or the workload's own."""

    def count(generic: bool, config: dict[str, Any], iterations: int, **levels: Any) -> dict[str, float]:
        workload = start(config=config, **levels)
        if not generic:
            for _ in range(iterations):
                workload.step(NullClock())
            return dict(workload.counters())
        workload.step(NullClock())
        with Counting(iterations) as counting:
            for _ in range(iterations):
                workload.step(NullClock())
        return {name: value or 0.0 for name, value in counting.result().items()}

    return count


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, float]]:
    """What has been counted: many levels have the same base."""
    return {}


@pytest.fixture
def counted(counters_of, known):
    """A counter after some iterations."""

    def count(name: str, config: dict[str, Any], iterations: int, **levels: Any) -> float:
        key = str((name in GENERIC, sorted(config.items()), iterations, sorted(levels.items())))
        if key not in known:
            known[key] = counters_of(name in GENERIC, config, iterations, **levels)
        return known[key][name]

    return count


@pytest.mark.parametrize(("toggle", "level", "witness"), levels_that_act())
def test_a_level_moves_its_witness_and_its_base_does_not(counted, toggle, level, witness) -> None:
    config = CONFIGS.get((toggle, level), ONE_STEP)
    iterations = ITERATIONS.get((toggle, level), 1 if witness in GENERIC else 2)
    space = Space(Spd.toggles, SpdConfig(**config), HERE)
    arm = space.closure({toggle: level})
    base = space.without(arm, toggle)
    moved = counted(witness, config, iterations, **arm)
    assert moved != counted(witness, config, iterations, **base)


def test_a_layers_own_adversary_masks_one_module_instead_of_all(counted) -> None:
    config = CONFIGS["pgd_layerwise", "single"]
    space = Space(Spd.toggles, SpdConfig(**config), HERE)
    single = space.closure({"pgd_layerwise": "single"})
    base = space.without(single, "pgd_layerwise")
    one, all_of_them = (counted("masked_modules", config, 2, **arm) for arm in (single, base))
    assert one < all_of_them


def test_a_baseline_repeats_its_counters(counters_of) -> None:
    first, second = (counters_of(True, ONE_STEP, 1) for _ in range(2))
    assert first == second
    assert {"ops", "flops", "host_reads", "saved_bytes"} <= first.keys()


def test_the_deferred_path_reads_nothing_outside_logging(counted) -> None:
    # The default optimiser reads each parameter's step count, although from the host.
    levels = {"metrics": "deferred", "mask_checks": "off", "loader": "memmap_batched", "optimizer": "fused"}
    assert counted("host_reads", ONE_STEP, 2, **levels) == 0


def test_the_naive_path_reads_every_loss_every_module_and_every_mask(counted) -> None:
    passes, modules, losses = 1 + 4 + 1, 4, 5
    parameters = modules * (
        2 + 4
    )  # V, U, and two layers of importance; the optimiser reads each one's step count
    assert counted("host_reads", SMALL, 1) == losses + modules + 2 * modules * passes + parameters


def test_the_naive_path_registers_a_hook_for_each_module_and_pass(counted) -> None:
    # One pass caches, one is stochastic, four search and one is the adversarial loss.
    assert counted("hook_registrations", SMALL, 1) == 4 * (1 + 1 + 4 + 1)


def test_profiled_steps_are_three_whatever_the_length(counted) -> None:
    for iterations in (8, 12):
        assert counted("profiled_steps", SMALL, iterations, profiler="torch") == 3
        assert counted("traces", SMALL, iterations, profiler="torch") == 1


def test_schedules_of_adversarial_steps_differ(start, run) -> None:
    passes = {}
    for level in ("n", "schedule", "larger", "every_k", "persistent"):
        workload = start(config={**SMALL, "modules": ["layers.1.attn.q"]}, pgd_steps=level)
        run(workload, 4)
        passes[level] = workload.counters()["pgd_passes"]
    assert passes["n"] == 16
    assert passes["schedule"] < 16
    assert passes["larger"] == 4
    assert passes["every_k"] == 4
    assert passes["persistent"] == 0


def test_persistent_sources_move_by_the_losses_own_gradient(start, run) -> None:
    workload = start(config=SMALL, pgd_steps="persistent")
    run(workload, 2)
    arm: Any = workload.arm
    first = {name: tensor.clone() for name, tensor in arm.kept_sources["pgd_subset"].items()}
    run(workload, 1)
    moved = arm.kept_sources["pgd_subset"]
    assert any(not torch.equal(first[name], moved[name]) for name in moved)
    assert all(tensor.min() >= 0 and tensor.max() <= 1 for tensor in moved.values())


def test_recomputing_blocks_keeps_less_for_the_backward_pass(counted) -> None:
    kept, less = (
        counted("saved_bytes", SMALL, 1, patching="wrapper", grad_checkpointing=level)
        for level in ("off", "per_block")
    )
    assert less < 0.75 * kept


def test_components_of_half_the_positions_cost_half_the_products(counted) -> None:
    config = {**SMALL, "components": 100, "batch_size": 8}
    every, routed = (
        counted("flops", config, 1, delta="folded", routed_rows=level) for level in ("all", "gathered")
    )
    assert 0.5 * every < routed < 0.85 * every
