"""What the digits workload declares, and what it refuses."""

from __future__ import annotations

import pytest
from torch.utils.flop_counter import FlopCounterMode

from perfsweep.workloads.api import REPLAY, Device, Parity
from perfsweep.workloads.digits.toggles import TOGGLES
from perfsweep.workloads.digits.workload import Digits

LEVELS = {
    "amp": ["off", "bf16", "fp16"],
    "tf32": ["off", "on"],
    "compile": ["off", "default", "reduce_overhead"],
    "pin_memory": ["off", "on"],
    "num_workers": [0, 2],
    "non_blocking": ["off", "on"],
    "prefetch": ["off", "stream"],
    "micro_batch": ["all", 64, 32],
    "optimizer": ["default", "foreach", "fused"],
    "zero_grad": ["zero", "none"],
    "grad_checkpointing": ["off", "on"],
    "gc": ["each_eval", "rarely", "frozen"],
    "checkpoint": ["sync", "async"],
    "wandb_logging": ["buffered", "each", "commit_false"],
}
LAPTOP = Device(type="cpu", cores=4, compiler=True)
SERVER = Device(type="cuda", count=1, name="a GPU", capability=(9, 0), cores=16, compiler=True)


def test_the_declared_levels_are_these_with_the_naive_one_first() -> None:
    assert {toggle.name: [level.value for level in toggle.levels] for toggle in Digits.toggles} == LEVELS


def test_any_number_of_rows_and_workers_is_a_level_with_the_witness_of_its_toggle() -> None:
    toggles = {toggle.name: toggle for toggle in TOGGLES}
    assert toggles["micro_batch"].level(48).witness == "micro_steps"
    assert toggles["num_workers"].level(3).witness == "worker_batches"


def test_levels_that_round_bound_every_comparison_with_the_reference() -> None:
    compared = {check.name for check in (REPLAY, *Digits.checks) if check.against == "reference"}
    rounding = [level for toggle in TOGGLES for level in toggle.levels if level.parity is Parity.TOLERANCE]
    assert [level.value for level in rounding] == ["bf16", "fp16", "on"]
    assert all(set(level.bounds) == compared for level in rounding)


def test_on_cpu_exactly_these_levels_are_unsupported_and_say_why() -> None:
    reasons = {
        (t.name, lv.value): lv.unsupported(LAPTOP)
        for t in TOGGLES
        for lv in t.levels
        if lv.unsupported(LAPTOP)
    }
    assert set(reasons) == {
        ("tf32", "on"),
        ("compile", "reduce_overhead"),
        ("pin_memory", "on"),
        ("non_blocking", "on"),
        ("prefetch", "stream"),
    }
    assert all("cpu" in str(reason) for reason in reasons.values())


def test_on_a_recent_gpu_every_level_is_supported() -> None:
    assert [lv.value for t in TOGGLES for lv in t.levels if lv.unsupported(SERVER)] == []


@pytest.mark.parametrize("config", [{"width": 8, "depth": 3}, {"model": "mlp", "width": 32, "depth": 2}])
def test_the_formula_of_work_agrees_with_a_flop_counter(start, run, config) -> None:
    workload = start(config=config)
    run(workload, 1)
    with FlopCounterMode(display=False) as counted:
        run(workload, 1)
    # The formula is exact: both count products only, two operations for each.
    assert workload.work().flops * 128 == counted.get_total_flops()
