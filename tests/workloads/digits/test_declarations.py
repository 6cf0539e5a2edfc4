"""What the digits workload declares, and what it refuses."""

from __future__ import annotations

import math

import pytest
from torch.utils.flop_counter import FlopCounterMode

from perfsweep.workloads.api import REPLAY, Device, Parity
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.digits.toggles import TOGGLES
from perfsweep.workloads.digits.workload import Digits
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training.toggles import GRAPHS_NEED

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
# Counters that the pipelines make for every workload.
GENERIC = {"ops", "host_reads", "flops", "saved_bytes", "low_precision_ops", "compiled_graphs", "wandb_calls"}
LAPTOP = Device(type="cpu", cores=4, compiler=True)
SERVER = Device(type="cuda", count=1, name="a GPU", capability=(9, 0), cores=16, compiler=True)


def test_the_declared_levels_are_these_with_the_naive_one_first() -> None:
    assert {toggle.name: [level.value for level in toggle.levels] for toggle in Digits.toggles} == LEVELS


def test_any_number_of_rows_and_workers_is_a_level_with_the_witness_of_its_toggle() -> None:
    toggles = {toggle.name: toggle for toggle in TOGGLES}
    assert toggles["micro_batch"].level(48).witness == "micro_steps"
    assert toggles["num_workers"].level(3).witness == "worker_batches"


def test_every_level_but_the_baseline_names_a_counter_that_exists(start) -> None:
    counters = GENERIC | set(start(config={"width": 4}).counters())
    for toggle in TOGGLES:
        assert {level.witness for level in toggle.levels[1:]} <= counters, toggle.name


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


def test_graph_replay_demands_that_gradients_are_dropped_and_not_accumulated() -> None:
    replay = next(t for t in TOGGLES if t.name == "compile").level("reduce_overhead")
    assert replay.requires == GRAPHS_NEED == {"zero_grad": ("none",), "micro_batch": ("all",)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "transformer"),
        ("width", 0),
        ("depth", -1),
        ("batch_size", 0),
        ("batch_size", 1438),  # one more than there are training rows
        ("batch_size", 12.5),
        ("eval_every", 0),
        ("checkpoint_every", -5),
        ("lr", 0.0),
        ("lr", math.nan),
        ("lr", math.inf),
        ("weight_decay", -0.1),
        ("train_fraction", 0.0),
        ("train_fraction", 1.0),
    ],
)
def test_a_field_out_of_range_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^workload\.{field}={value} "):
        DigitsConfig(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["batch_size", "train_fraction"])
def test_the_largest_values_that_leave_something_to_do_are_accepted(field: str) -> None:
    config = DigitsConfig(
        **{"batch_size": {"batch_size": 1437}, "train_fraction": {"train_fraction": 0.9999}}[field]
    )  # type: ignore[arg-type]
    assert config.epoch >= 1
    assert config.train_rows < 1797


@pytest.mark.parametrize(
    ("levels", "config", "cadence"),
    [
        ({}, {}, 55),
        ({}, {"eval_every": 2, "checkpoint_every": 3}, 66),
        ({"gc": "frozen"}, {}, 55),
        ({"gc": "rarely"}, {"eval_every": 1, "checkpoint_every": 1}, 110),
    ],
)
def test_the_cadence_holds_every_kind_of_periodic_work(start, levels, config, cadence) -> None:
    assert start(config=config, **levels).cadence == cadence


@pytest.mark.parametrize("config", [{}, {"width": 8, "depth": 3}, {"model": "mlp", "width": 32, "depth": 2}])
def test_the_formula_of_work_agrees_with_a_flop_counter(start, run, config) -> None:
    workload = start(config=config)
    run(workload, 1)
    with FlopCounterMode(display=False) as counted:
        run(workload, 1)
    # The formula is exact: both count products only, two operations for each.
    assert workload.work().flops * 128 == counted.get_total_flops()
