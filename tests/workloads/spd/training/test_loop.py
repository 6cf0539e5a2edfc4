"""One iteration after another: what is due when, what is counted, and what a row says."""

# Drives `reference` and `workload` of perfsweep.workloads.spd, and `loading` of perfsweep.workloads.spd.data.
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from phase_times import PhaseNames

from perfsweep.workloads.spd import named_files
from perfsweep.workloads.spd.maths.losses import learning_rate

SMALL: dict[str, Any] = {
    "modules": ["layers.0.attn.k", "layers.1.mlp.fc"],
    "components": 6,
    "batch_size": 4,
    "seq_len": 8,
    "pgd_steps": 1,
    "warmup_steps": 0,
    "log_every": 1000,
    "eval_every": 0,
    "save_every": 0,
    "eval_batches": 1,
}


def test_rows_evaluations_and_checkpoints_come_when_they_are_due(start) -> None:
    rows: list[dict[str, float]] = []
    config = {**SMALL, "log_every": 2, "eval_every": 3, "save_every": 4}
    workload = start(config=config, log=rows.append, gc="rarely")
    file = workload.context.scratch_dir / "checkpoint.pt"
    phases = []
    for step in range(1, 7):
        workload.step(clock := PhaseNames())
        phases.append(clock.names)
        assert file.exists() == (step >= 4)
    logged, evaluated = (
        [row["step"] for row in rows if name in row] for name in ("perf/step_ms", "eval/ce/ci")
    )
    assert (logged, evaluated) == ([2, 4, 6], [3, 6])
    counts = [
        (names.count("logging"), names.count("evaluate"), names.count("checkpoint")) for names in phases
    ]
    assert counts == [(1, 0, 0), (2, 0, 0), (1, 1, 0), (2, 0, 1), (1, 0, 0), (2, 1, 0)]
    assert [names.count("gc") for names in phases] == [0, 0, 1, 0, 0, 1]
    assert workload.cadence == 60  # the collector follows every tenth evaluation
    assert (workload.counters()["evaluations"], named_files.read(file)["step"]) == (2, 4)


def test_an_iteration_marks_its_phases_in_their_order(start) -> None:
    for own, passes in (({"losses": "forward"}, (3, 6, 0)), ({}, (3, 6, 1))):
        workload = start(config={**SMALL, **own})
        workload.step(clock := PhaseNames())
        counts = workload.counters()
        assert tuple(counts[name] for name in ("masked_passes", "masked_modules", "pgd_passes")) == passes
    head, tail = ["data", "transfer", "deltas", "target", "importance"], ["backward", "optimizer", "logging"]
    assert clock.names[:5] == head and clock.names[-3:] == tail
    assert all(name.startswith("loss_") for name in clock.names[5:-3]) and len(clock.names) > 9
    halves = {**SMALL, "microbatches": 2, "pgd_scope": "datapoint"}
    start(config=halves, micro_batch="loop").step(pieces := PhaseNames())
    assert pieces.names.count("backward") == pieces.names.count("target") == 2
    assert pieces.names.count("deltas") == pieces.names.count("optimizer") == 1


def test_a_row_has_the_rate_of_its_iteration_and_the_time_since_the_row_before(
    start, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(
        "perfsweep.workloads.spd.training.loop.time", SimpleNamespace(perf_counter=lambda: now[0])
    )
    rows: list[dict[str, float]] = []
    config = {**SMALL, "log_every": 2, "steps": 10, "save_every": 2}
    workload = start(config=config, log=rows.append)
    for _ in range(2):
        now[0] += 3.0
        run(workload, 2)
    assert [row["perf/step_ms"] for row in rows] == [1500.0, 1500.0]
    recipe = workload.config.recipe
    assert [row["train/schedules/lr"] for row in rows] == [learning_rate(recipe, step) for step in (1, 3)]
    assert rows[0]["train/loss/total"] != rows[1]["train/loss/total"] == workload.numbers()["last_loss"]
    again = start(
        config={**config, "resume": str(workload.context.scratch_dir / "checkpoint.pt")}, log=rows.append
    )
    now[0] += 4.0
    run(again, 2)
    assert (rows[2]["step"], rows[2]["perf/step_ms"]) == (6, 2000.0)


def test_what_components_leave_over_is_exact_whatever_products_are_computed_in(start) -> None:
    arm = start(config=SMALL, amp="bf16").arm
    pairs = arm.decomposition.operands()
    exact = {one.name: arm.weight(one) - (pairs[one.name].V @ pairs[one.name].U).T for one in arm.sites}
    with arm.autocast:
        inside = arm.deltas(pairs)
    assert all(torch.equal(inside[name], delta) for name, delta in exact.items()) and len(inside) == 2


def test_the_exponent_falls_by_the_iterations_done(start, run) -> None:
    """With importances between 0 and 1 a larger exponent makes the minimality smaller."""
    config = {**SMALL, "steps": 3, "lr": 1e-9, "pnorm": 4.0, "final_p": 0.1, "log_every": 1}
    rows: list[dict[str, float]] = []
    workload = start(config=config, log=rows.append)
    name = next(name for name in workload.arm.decomposition.named_tensors() if "biases.1" in name)
    with torch.no_grad():
        workload.arm.decomposition.named_tensors()[name].fill_(0.5)
    run(workload, 3)
    seen = [row["train/loss/minimality"] for row in rows]
    assert seen[0] < seen[1] < seen[2]
