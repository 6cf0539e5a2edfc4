"""A training as it is measured: what a step counts, marks and logs, and what it says of itself."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from phase_times import PhaseNames

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import presets
from perfsweep.workloads.latentwire.evidence import greedy_answers
from perfsweep.workloads.latentwire.presets import LMS

QUICK = {"passes": "merged", "teacher": "slice"}


def test_a_step_marks_its_phases_and_evaluates_when_it_is_due(start) -> None:
    workload = start(QUICK, eval_every=2, models=1)
    seen = []
    for _ in range(3):
        workload.step(clock := PhaseNames())
        seen.append(clock.names)
    assert seen[0][0] == "data_wait" and seen[0][-2:] == ["optim", "log"]
    assert [names.count("evaluate") for names in seen] == [0, 1, 0] and seen[1][-1] == "evaluate"
    assert {"teacher", "student"} <= set(seen[0])
    greedy_answers(workload.arm)
    assert seen[2] == clock.names, "after a step the clock belongs to nobody"


def test_rows_of_the_log_are_what_the_training_did(start, run) -> None:
    rows: list[dict[str, float]] = []
    workload = run(start(QUICK, log=rows.append), 2)
    assert workload.progress() == sum(row["examples"] for row in rows) == 8
    assert [row["loss"] for row in rows] == list(workload.arm.history)
    assert workload.numbers()["last_loss"] == rows[-1]["loss"]
    for row in rows:
        assert 0 <= row["data_wait_ms"] <= row["batch_ms"] and row["skipped"] == 0
    counters = workload.counters()
    assert (counters["examples"], counters["examples_per_step"], counters["ranks"]) == (8, 8, 2)
    stored = sum(model.lm.stored_bytes() for model in workload.arm.models.values())
    assert counters["lm_bytes"] == 2 * stored and counters["devices_used"] == 2


def test_the_norm_is_of_everything_that_is_trained(start) -> None:
    workload = start(QUICK)
    modules = [workload.arm.encoder, *workload.arm.trained]
    whole = torch.cat([p.detach().double().flatten() for module in modules for p in module.parameters()])
    found = workload.numbers()
    assert found["parameter_norm"] == pytest.approx(whole.norm().item()) and math.isnan(found["last_loss"])


@pytest.mark.parametrize(("level", "released"), [("step", [1, 2]), ("epoch", [0, 1, 1])])
def test_the_cache_is_released_when_it_is_due(start, run, level: str, released: list[int]) -> None:
    workload = start({**QUICK, "empty_cache": level, "effective_batch": 8}, models=1)
    assert workload.arm.per_epoch == 2
    found = []
    for _ in released:
        run(workload, 1)
        found.append(workload.counters()["cache_releases"])
    assert found == released


@pytest.mark.parametrize(
    ("config", "level", "cadence"),
    [
        ({"log_every": 6, "eval_every": 0}, "never", 6),
        ({"log_every": 6, "eval_every": 5}, "never", 30),
        ({"log_every": 6, "eval_every": 0}, "epoch", 12),
    ],
)
def test_a_region_holds_whole_periods(start, config: dict, level: str, cadence: int) -> None:
    assert start({**QUICK, "empty_cache": level}, models=1, **config).cadence == cadence


def test_a_probe_counts_nothing_and_leaves_no_gradient(start) -> None:
    workload = start(QUICK, kind="evidence", epochs=2)
    modules = [workload.arm.encoder, *workload.arm.trained]
    modules += [model.lm for model in workload.arm.models.values()]
    assert all(p.grad is None for module in modules for p in module.parameters())
    assert workload.progress() == 0 and workload.counters()["micro_steps"] == 0
    found = workload.evidence()
    assert found.tensors["grad_norm"].item() == pytest.approx(
        found.tensors["gradient"].double().norm().item(), rel=1e-5
    )
    assert found.numbers["examples"] == found.numbers["oom_deaths"] == 0
    assert (found.numbers["rows_chosen"], found.numbers["training_steps"]) == (4, 8)


def test_data_are_told_apart_by_examples_tokens_and_where_training_begins(start) -> None:
    configs = [{}, {"data_seed": 1}, {"answer_tokens": 9}, {"anchor": "chat"}]
    digests = [start(QUICK, models=1, **config).data_digest() for config in configs]
    assert len(set(digests)) == len(configs) and digests[0] == start(QUICK, models=1, lr=1.0).data_digest()


def test_work_is_that_of_every_model_in_the_numbers_it_uses(start) -> None:
    workload = start(QUICK)
    sizes = workload._config.sizes
    layouts = workload.arm.layouts
    one, two = (
        presets.fast_flops(LMS[name], layout.prefix, sizes.answer_tokens, sizes.early_tokens)
        for name, layout in zip(sizes.lms[:2], layouts, strict=True)
    )
    assert workload.work().flops == one + two
    kinds = [
        start({**QUICK, **levels}, models=1).work().products
        for levels in ({}, {"lm_dtype": "bf16"}, {"amp": "bf16"})
    ]
    assert kinds == ["float32", "half", "half"]


def test_adapters_that_no_rank_has_all_of_cannot_be_kept(start, tmp_path: Path) -> None:
    workload = start(QUICK, models=1)
    workload._levels = {**workload._levels, "parallel": "model_per_gpu"}
    with pytest.raises(
        ConfigError, match="model_per_gpu leaves no rank with all adapters; use single to keep"
    ):
        workload.keep(tmp_path)
    assert not list(tmp_path.glob("*.csv"))


def test_losses_are_kept_by_the_steps_they_are_of(start, run, tmp_path: Path) -> None:
    workload = run(start(QUICK, models=1, held_out=1, max_new=1), 3)
    workload.arm.history.popleft()  # as of a training longer than what is remembered
    (tmp_path / "kept").mkdir()
    workload.keep(tmp_path / "kept")
    lines = (tmp_path / "kept" / "losses.csv").read_text().split()
    assert [line.split(",")[0] for line in lines] == ["step", "2", "3"]
