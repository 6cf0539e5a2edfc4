"""The loop around a training: what is periodic and logged, what evidence leaves as it was, what goes on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import BASELINE, INPUTS, TARGETS, Tiny, TinyConfig, Train, go_on, parameters, squared_error
from torch.utils.data import DataLoader, TensorDataset

from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.training.compilation import recompute

EVALUATED: dict[str, Any] = {"evaluate": lambda model: {"figure": 1.0}}


PERIODS = [(0, 0, "automatic", 1), (2, 3, "each_eval", 6), (3, 4, "rarely", 60), (3, 0, "frozen", 3)]


@pytest.mark.parametrize(("evaluate", "save", "collect", "cadence"), PERIODS)
def test_a_region_is_whole_periods_of_all_that_comes_now_and_then(
    train: Train, evaluate: int, save: int, collect: str, cadence: int
) -> None:
    fields = {**EVALUATED, "evaluate_every": evaluate, "save_every": save}
    assert train(fields, gc=collect).cadence == cadence


def test_collections_that_a_policy_leaves_out_are_counted_and_files_are_written_in_their_turn(
    train: Train,
) -> None:
    fields = {**EVALUATED, "evaluate_every": 1, "save_every": 2}
    found = train(fields, steps=5, gc="each_eval", micro_batch=10).counters()
    done = {"iterations": 5, "examples": 120, "micro_steps": 15, "ranks": 5, "evaluations": 5, "gc_runs": 5}
    assert found == {**dict.fromkeys(found, 0), **done, "checkpoint_writes": 2}
    found = train(fields, steps=5, checkpoint="async").counters()
    done |= {"micro_steps": 5, "gc_runs": 0, "uncollected_evaluations": 5, "background_saves": 2}
    assert found == {**dict.fromkeys(found, 0), **done, "checkpoint_writes": 2}


def test_blocks_that_are_recomputed_run_once_more_and_have_the_same_gradients() -> None:
    runs: list[int] = []
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh())
    block[0].register_forward_hook(lambda *_: runs.append(len(runs)))
    gradients = []
    for _ in range(2):
        (own,) = torch.autograd.grad(block(INPUTS).square().sum(), block[0].weight)
        gradients.append(own)
        recompute([block])
    assert torch.equal(*gradients) and len(runs) == 3


def test_a_rank_that_does_not_write_leaves_files_to_the_one_that_does(train: Train) -> None:
    for writes in (True, False):
        workload = train({"save_every": 1})
        workload._replicas.writes = writes
        go_on(workload, 2)
        assert workload.checkpoint_file.exists() == writes


def test_every_loss_is_logged_by_the_end_with_the_figures_of_the_last_evaluation(tmp_path: Path) -> None:
    rows: list[Any] = []
    figures = iter(range(10))
    fields = {
        "evaluate": lambda model: {"figure": float(next(figures))},
        "evaluate_every": 2,
        "accumulate": 2,
    }
    workload = Tiny(fields)
    workload.setup(TinyConfig(), BASELINE, Context(Device(), tmp_path, tmp_path, log=rows.append))
    go_on(workload, 3)
    losses = workload.evidence().tensors["losses"].tolist()
    workload.close()
    assert [(row["iteration"], row["figure"]) for row in rows] == [(1, 0.0), (2, 1.0), (3, 1.0)]
    assert [row["loss"] for row in rows] == pytest.approx(losses)


def small_error(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 0.01 * squared_error(model, x, y)


def test_evidence_before_the_first_iteration_changes_nothing_and_scales_nothing(train: Train) -> None:
    fields = {"loss": small_error}  # what fp16's first scale lifts beyond its range is another matter
    plain, scaled = train(fields), train(fields, amp="fp16", micro_batch=10)
    before = parameters(plain)
    for workload in (plain, scaled):
        workload.prepare_evidence()
        assert not any(workload.counters()[name] for name in ("micro_steps", "examples", "iterations"))
    assert torch.equal(parameters(plain), before)
    first, other = (workload.evidence().tensors["first_gradient"] for workload in (plain, scaled))
    assert math.isnan(plain.numbers()["last_loss"]) and plain.evidence().tensors["losses"].shape == (0,)
    model = torch.nn.Linear(8, 1)
    model.load_state_dict(plain.model.state_dict())
    small_error(model, INPUTS[:24], TARGETS[:24]).backward()
    assert torch.allclose(first, torch.cat([p.grad.flatten() for p in model.parameters()]), rtol=1e-5)  # type: ignore[union-attr]
    assert torch.allclose(first, other, rtol=0.05, atol=1e-3)
    go_on(plain, 2)
    counts = plain.counters()
    plain.prepare_evidence()
    assert plain.counters() == counts and counts["iterations"] == 2


def test_a_training_that_scales_goes_on_from_one_that_does_not_and_back(train: Train) -> None:
    for before, after in (("off", "fp16"), ("fp16", "off"), ("fp16", "fp16")):
        workload, other = train(steps=2, amp=before), train(amp=after)
        if before == "fp16":
            workload._scaler.update(2.0**5)
        other.load_state_dict(workload.state_dict())
        assert torch.equal(parameters(other), parameters(workload)) and other.iteration == 2
        assert (
            other._scaler.get_scale() == {"off": 1.0, "fp16": 2.0**5 if before == after else 2.0**16}[after]
        )
        go_on(other, 1)
        assert other.iteration == 3


def test_the_data_of_a_loader_and_a_stream_hear_of_every_epoch(train: Train) -> None:
    told: list[int] = []

    class Rows(TensorDataset):
        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    class Stream:
        def __iter__(self) -> Any:
            return iter(Rows(INPUTS, TARGETS))

        def set_epoch(self, epoch: int) -> None:
            told.append(epoch)

    def loader(**how: Any) -> DataLoader[Any]:
        return DataLoader(Rows(INPUTS, TARGETS), batch_size=35, **how)

    for fields in ({"loader": loader}, {"data": Stream()}):
        train(fields, steps=5, batch_size=35)
        assert told == [0, 1, 2]
        told.clear()
