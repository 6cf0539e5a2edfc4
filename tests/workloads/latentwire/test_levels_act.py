"""Every level changes what runs: its counter moves against the base, and stays with the level taken away."""

from __future__ import annotations

import pytest
import torch

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.trial.counters import Counting
from perfsweep.workloads.api import Device
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.workload import LatentWire

pytestmark = pytest.mark.workloads

HERE = Device(compiler=True, cores=2)
SPACE = Space(LatentWire.toggles, LatentWireConfig(), HERE)
LEVELS = [(toggle.name, level) for toggle in LatentWire.toggles for level in toggle.levels[1:]]
DISPATCHED = ("ops", "low_precision_ops", "saved_bytes")  # counted by the pipelines under a dispatch mode
COMPILER = {"compiled_graphs", "cudagraph_recordings"}  # counted by the pipelines, by what the compiler says
WITNESSES = {level.witness for _, level in LEVELS if level.witness}
SMALL = {"effective_batch": 4, "micro_batch": 4}

CHEAP = {"passes": "merged", "teacher": "slice"}
# Where a level needs something to act on; all others act on four rows at a time.
NEEDS = {
    "accum=backward_each": {"micro_batch": 2},
    "micro_batch=8": {"effective_batch": 16, "micro_batch": 16},
    "micro_batch=32": {"effective_batch": 32, "micro_batch": 16, **CHEAP},
    "micro_batch=64": {"effective_batch": 64, "micro_batch": 32, **CHEAP},
    "micro_batch=auto": {"effective_batch": 4, "micro_batch": 2},
    "effective_batch=256": {},
    "effective_batch=1024": {},
    "bucket=window": {"micro_batch": 2, "effective_batch": 8},
    "bucket=global": {"effective_batch": 8, "micro_batch": 8, "teacher": "slice"},
    "oom=backoff": {},
}
CONFIG = {
    "oom=backoff": {"oom_above": 2},
    "decode=batched": {"eval_every": 1},
    "micro_batch=32": {"data_n": 32},
    "micro_batch=64": {"data_n": 64},
    "encoder_trim=batch_max": {"data": "SHORT"},
    "answer_trim=batch_max": {"data": "SHORT"},
    "bucket=window": {"data_n": 40, "max_prompt": 600},
    "bucket=global": {"data_n": 40, "max_prompt": 600},
}
RANKED = ("ddp", "model_per_gpu", "fsdp")


def here(name: str, level) -> bool:
    return not level.unsupported(HERE) and name != "compile" and level.value not in (*RANKED, 256, 1024)


def arm_and_base(name, level):
    given = {**SMALL, **NEEDS.get(f"{name}={level.value}", {})}
    given.pop(name, None)
    if name == "micro_batch":
        base = {**SMALL, **NEEDS.get(f"{name}={level.value}", {})}
        return SPACE.closure({**base, name: level.value}), SPACE.closure(base)
    arm = SPACE.closure({**given, name: level.value})
    return arm, SPACE.without(arm, name)


def counted(start, run, levels, witness, config):
    few = {"models": 1, "data_n": 16, "eval_rows": 2, "max_new": 4, "held_out": 4}
    workload = run(start(levels, small=False, **{**few, **config}), 2)
    if witness not in DISPATCHED:
        return workload.counters()
    with Counting() as counting:
        run(workload, 1)
    return counting.result()


@pytest.fixture(scope="module")
def counted_bases():
    """Counters of bases that several levels have in common."""
    return {}


def counted_base(known, start, run, levels, witness, config):
    key = (*sorted(levels.items()), *sorted(config.items()), witness in DISPATCHED)
    if key not in known:
        known[key] = counted(start, run, levels, witness, config)
    return known[key][witness]


@pytest.mark.parametrize(
    ("name", "level"),
    [pytest.param(name, level, id=f"{name}={level.value}") for name, level in LEVELS if here(name, level)],
)
def test_every_level_moves_its_witness_against_its_base(
    start, run, short, counted_bases, name, level
) -> None:
    arm, base = arm_and_base(name, level)
    config = {
        key: short if value == "SHORT" else value
        for key, value in CONFIG.get(f"{name}={level.value}", {}).items()
    }
    if name == "oom":  # the base dies: compare with a training that has memory enough
        assert counted(start, run, arm, level.witness, config)[level.witness] > 0
        assert counted(start, run, arm, level.witness, {})[level.witness] == 0
        return
    found = counted(start, run, arm, level.witness, config)[level.witness]
    assert found != counted_base(counted_bases, start, run, base, level.witness, config)


def test_the_baseline_moves_no_witness(start, run) -> None:
    first, second = (run(start(), 2) for _ in range(2))
    counters = [
        {name: value for name, value in one.counters().items() if name in WITNESSES}
        for one in (first, second)
    ]
    assert counters[0] == counters[1]
    dispatched = []
    for workload in (first, second):
        with Counting() as counting:
            run(workload, 1)
        dispatched.append({name: counting.result()[name] for name in DISPATCHED})
    assert dispatched[0] == dispatched[1]
    assert {*counters[0], *DISPATCHED} == WITNESSES - COMPILER


def test_a_cache_that_is_filled_lazily_pays_once_for_each_row(start, run, tmp_path) -> None:
    workload = start({"teacher": "cache_h"}, teacher_fill="lazy", cache=tmp_path)
    steps = workload.arm.per_epoch
    run(workload, steps)
    assert workload.counters()["teacher_rows"] == 2 * len(workload.arm.corpus)
    run(workload, steps)
    assert workload.counters()["teacher_rows"] == 2 * len(workload.arm.corpus)


def test_tokens_are_made_in_every_step_or_never(start, run, tmp_path) -> None:
    assert run(start(), 2).counters()["rows_tokenised"] == 2 * 4 * 2
    for level in ("pre", "cache", "cache"):
        assert run(start({"tokenise": level}, cache=tmp_path), 2).counters()["rows_tokenised"] == 0


def test_a_late_log_reads_the_device_once_in_ten_steps(start, run) -> None:
    rows: list[dict[str, float]] = []
    workload = run(start({"sync": "late", "optimizer": "fused"}, log=rows.append, models=1), 20)
    assert workload.counters()["syncs"] == 2
    assert len(rows) == 20
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in rows)


def test_a_late_training_leaves_on_the_device_what_calibrates_too(start, run) -> None:
    assert run(start({"sync": "late", "calibration": "per_step"}), 2).counters()["syncs"] == 2


def test_chatty_and_late_logs_say_the_same(start, run) -> None:
    logs: list[list[dict[str, float]]] = [[], []]
    for log, level in zip(logs, ("chatty", "late"), strict=True):
        workload = run(start({"sync": level}, log=log.append, dtype="float64", models=1), 10)
        workload.close()
    for name in ("tf", "first", "kce", "kd", "loss", "grad_norm"):
        # The norm that is logged late is summed in another order, and in float32.
        assert [row[name] for row in logs[0]] == pytest.approx([row[name] for row in logs[1]], rel=1e-6), name


def test_workers_load_what_the_main_process_would(start, run) -> None:
    workload = run(start({"loader": "dataloader", "num_workers": 2}), 2)
    assert workload.counters()["worker_batches"] == 2
    assert workload.counters()["rows_tokenised"] == 2 * 4 * 2


def test_rows_chosen_by_memory_halve_with_it(start) -> None:
    """Bytes for each row are measured, so half the memory takes at most half the rows."""
    roomy = start(
        {"micro_batch": "auto", "effective_batch": 16}, small=False, memory_mb=100_000
    ).arm.shape.micro
    per_row = 1
    sizes = [
        start({"micro_batch": "auto", "effective_batch": 16}, small=False, memory_mb=mb).arm.shape.micro
        for mb in (40, 20)
    ]
    assert roomy == 16
    assert sizes[1] <= max(sizes[0] // 2, per_row) < roomy
