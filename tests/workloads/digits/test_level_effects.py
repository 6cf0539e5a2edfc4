"""How often, and by which kernels, a level does what it is named for."""

from __future__ import annotations

import pytest
import torch

SMALL = {"width": 4}
# Three iterations to an epoch, and all periodic work after each epoch.
PERIODIC = {"width": 4, "batch_size": 400, "eval_every": 1, "checkpoint_every": 1}


@pytest.fixture
def counted(start, run):
    """A counter of the workload after three iterations."""

    def count(name: str, **levels) -> float:
        periodic = name in ("uncollected_evaluations", "gc_runs", "background_saves")
        workload = start(config=PERIODIC if periodic else SMALL, **levels)
        run(workload, 3)
        return workload.counters()[name]

    return count


def test_pieces_are_as_many_as_they_must_be(counted) -> None:
    assert [counted("micro_steps", micro_batch=size) for size in ("all", 48, 1000)] == [3, 9, 3]


def test_recomputing_blocks_keeps_less_for_the_backward_pass(saved_bytes_of) -> None:
    kept, again, recomputed = (
        saved_bytes_of(config={"depth": 3}, grad_checkpointing=level) for level in ("off", "off", "on")
    )
    assert kept == again
    # What is left, the inputs of blocks, stem and head, is under two thirds of three whole blocks.
    assert recomputed < 0.67 * kept


def test_fused_and_listed_updates_run_the_kernels_they_are_named_for(operations_of) -> None:
    assert operations_of(config=SMALL, optimizer="fused").by_name["_fused_adamw_"] == 1
    assert operations_of(config=SMALL, optimizer="foreach").by_name["_foreach_addcdiv_"] >= 1


def test_an_update_whose_gradients_overflow_is_skipped_and_counted(start, run) -> None:
    workload = start(config={"model": "mlp", "width": 16}, amp="fp16")
    run(workload, 2)
    before = [parameter.detach().clone() for parameter in workload.model.parameters()]
    workload._scaler.update(1e30)  # no loss survives this scale in fp16
    run(workload, 1)
    assert workload.counters()["skipped_updates"] == 1
    assert all(torch.equal(a, b) for a, b in zip(before, workload.model.parameters(), strict=True))
