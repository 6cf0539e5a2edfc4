"""Rows at a time where memory decides: measured on real windows, within the tighter of two limits."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch
from bare_arms import bare

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.training import micro_batch
from perfsweep.workloads.latentwire.training.micro_batch import HEADROOM, choose_rows
from perfsweep.workloads.latentwire.variants import gradients

MIB = 2**20
CPU = torch.device("cpu")


def kept(rows: int) -> None:
    """A backward pass that holds one MiB of each row."""
    x = torch.ones(rows, MIB // 4, requires_grad=True)
    (x * x).sum().backward()


def limit(rows: float) -> int:
    """Bytes of which so many rows fill what may be filled."""
    return round(rows * MIB / HEADROOM)


@pytest.mark.parametrize(
    ("bytes_", "most", "rows"),
    [(limit(1.99), 16, 1), (limit(2.01), 16, 2), (limit(7.9), 16, 4), (10**9, 8, 8)],
)
def test_the_largest_power_of_two_that_fits_is_taken(bytes_: int, most: int, rows: int) -> None:
    assert choose_rows(kept, most, CPU, bytes_) == rows


@pytest.mark.parametrize(
    ("piece", "config", "says"),
    [
        (4, {}, None),
        (8, {}, None),
        ("auto", {}, None),
        (16, {}, "a piece cannot be larger than effective_batch=8"),
        (4, {"manifold": True}, r"workload\.manifold=true takes statistics of the whole batch: use micro_"),
        ("auto", {"adaptive_first": True}, r"adaptive_first=true takes .*: use micro_batch=8"),
        (8, {"manifold": True, "adaptive_first": True}, None),
    ],
)
def test_a_piece_is_no_larger_than_its_window_and_all_of_it_where_statistics_are(piece, config, says) -> None:
    (toggle,) = (one.toggle for one in gradients.VARIANTS if one.toggle.name == "micro_batch")
    assert [level.value for level in toggle.levels] == [1, 8, 32, 64, "auto"]
    refused = toggle.level(piece).refused
    assert refused is not None
    found = refused(LatentWireConfig(**config), {"micro_batch": piece, "effective_batch": 8})
    assert (found is None) == (says is None) and re.search(says or "", found or "")


def test_random_numbers_come_again_once_they_are_restored() -> None:
    states = gradients.random_states()
    drawn = torch.rand(3)
    gradients.restore(states)
    assert torch.equal(torch.rand(3), drawn)


def test_an_attempt_that_runs_out_of_memory_does_not_fit() -> None:
    def attempt(rows: int) -> None:
        if rows > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        kept(rows)

    assert choose_rows(attempt, 16, CPU, 10**9) == 2


def test_where_not_even_one_row_fits_the_remedy_is_named() -> None:
    with pytest.raises(ConfigError, match=r"not even one row fits into 1 MiB; raise workload\.memory_mb"):
        choose_rows(kept, 16, CPU, MIB)


@pytest.mark.parametrize(
    ("own_mb", "budget", "tighter"),
    [
        (None, None, None),
        (40, None, 40 * MIB),
        (None, 9 * MIB, 9 * MIB),
        (40, 9 * MIB, 9 * MIB),
        (8, 9 * MIB, 8 * MIB),
    ],
)
def test_the_tighter_of_two_limits_holds_and_ranks_agree(
    own_mb: int | None, budget: int | None, tighter: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(micro_batch, "rows_that_fit", lambda *given: asked.append(given[-1]) or 8)
    made = bare({"micro_batch": "auto"}, memory_mb=own_mb)
    made.context, made.corpus = dataclasses.replace(made.context, memory_budget=budget), None
    made.least = lambda rows: rows // 2
    assert made.rows_at_a_time(None) == 4
    assert asked == [tighter]
    assert bare({"micro_batch": 16, "effective_batch": 16}).rows_at_a_time(None) == 16


def test_an_attempt_computes_gradients_and_leaves_no_trace(start, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def noted(attempt: Any, most: int, device: torch.device, limit: int | None) -> int:
        measured.append(choose_rows(attempt, 1, device, limit))
        held: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda one: held.append(one.numel()) or one, lambda one: one
        ):
            attempt(1)
        measured.append(sum(held))
        return 2

    monkeypatch.setattr("perfsweep.workloads.latentwire.training.micro_batch.choose_rows", noted)
    workload = start({"micro_batch": "auto", "passes": "merged", "teacher": "slice"})
    assert measured[0] == 1 and measured[1] > 0
    assert workload.arm.shape.micro == 2
    assert not workload._counts
    assert all(parameter.grad is None for one in workload.arm.trained for parameter in one.parameters())
