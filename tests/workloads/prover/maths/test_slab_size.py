"""Memory that a slab is predicted to need, what is refused, and the climb to the best size."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.workloads.prover.maths import slab_size
from perfsweep.workloads.prover.maths.slab_size import (
    PredictedOutOfMemory,
    SlabMemory,
    _climb,
    best_slab,
    device_budget,
)

SMALL = SlabMemory(pairs=10, slots=4, columns=3, item=2, states=5, width=8)
ROW = 5 * 10 * 4 * 3 * 2 + 6 * 5 * 8 * 4


def test_a_slab_that_just_fits_passes_and_one_more_byte_is_refused() -> None:
    SMALL.check(7, 7 * ROW)
    with pytest.raises(PredictedOutOfMemory, match=r"a slab of 7 rows .*toggles\.slab_size=6 would fit"):
        SMALL.check(7, 7 * ROW - 1)
    with pytest.raises(PredictedOutOfMemory, match="not even one row would fit"):
        SMALL.check(1, ROW - 1)


def test_the_refusal_names_peak_largest_tensor_and_budget_in_gigabytes() -> None:
    rows = 10**6
    expected = f"to need {rows * ROW / 1e9:.2f} GB \\(0.24 GB for one tensor .* and the budget is 1.50 GB"
    with pytest.raises(PredictedOutOfMemory, match=expected):
        SMALL.check(rows, int(1.5e9))


@pytest.mark.parametrize(
    ("memory_gb", "given", "expected"),
    [(0.001, None, 10**6), (None, 5000, 5000), (0.001, 5000, 5000), (0.000001, 5000, 1000)],
)
def test_the_smallest_limit_is_the_budget(memory_gb: float | None, given: int | None, expected: int) -> None:
    assert device_budget(memory_gb, given, "cpu") == expected


def test_without_limits_it_is_nine_tenths_of_the_machines_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert device_budget(None, None, "cpu") == int(0.9 * 4096 * 1000)
    assert device_budget(1.0, 2**40, "cpu") == int(0.9 * 4096 * 1000)


def climbed(times: dict[int, float], most: int = 10**6, budget: int = 10**12) -> list[int]:
    return list(_climb(lambda size: times.get(size, 1.0), most, SMALL, budget))


def test_two_rungs_in_a_row_far_above_the_best_end_the_climb() -> None:
    worse = {8: 1.0, 16: 2.0, 32: 1.4, 64: 1.6, 128: 1.7}
    assert climbed(worse) == [8, 16, 32, 64, 128]
    assert climbed({**worse, 64: 1.5, 128: 1.4, 256: 1.51, 512: 2.0}) == [2**power for power in range(3, 10)]
    assert climbed({}) == [2**power for power in range(3, 14)]


@pytest.mark.parametrize(("most", "sizes"), [(1, [8]), (8, [8]), (9, [8, 16]), (17, [8, 16, 32])])
def test_sizes_that_candidates_cannot_fill_are_not_tried_but_for_the_smallest(
    most: int, sizes: list[int]
) -> None:
    assert climbed({}, most=most) == sizes


@pytest.mark.parametrize(("budget", "sizes"), [(0, [8]), (32 * ROW, [8, 16, 32]), (32 * ROW - 1, [8, 16])])
def test_sizes_beyond_the_budget_are_not_tried_but_for_the_smallest(budget: int, sizes: list[int]) -> None:
    assert climbed({}, budget=budget) == sizes


def test_the_choice_is_read_from_the_file_that_an_earlier_trial_left(tmp_path: Path) -> None:
    file = tmp_path / "slab.json"
    file.write_text(json.dumps({8: 3.0, 16: 1.0, 32: 2.0}))
    nothing: Any = None
    chosen = best_slab(
        step=nothing, start=nothing, queries=nothing, most=1, memory=SMALL, budget=1, file=file
    )
    assert chosen == (16, 9)  # three steps of each size


def test_sizes_are_timed_over_three_steps_after_a_first_and_the_times_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, stepped = iter([5.0, 6.0, 10.0, 14.0]), []
    monkeypatch.setattr(slab_size, "processor_seconds", lambda like: next(seconds))

    def start(atoms: torch.Tensor, numbers: torch.Tensor) -> Any:
        assert numbers.tolist() == [-1] * len(atoms)
        return SimpleNamespace(done=atoms[:, 0])

    def step(rows: Any) -> Any:
        stepped.append(rows.done.tolist())
        return rows, {}

    file, queries = tmp_path / "new" / "slab.json", torch.arange(3)[:, None]
    given: Any = {"step": step, "start": start, "queries": queries, "memory": SMALL, "budget": 10**9}
    assert best_slab(**given, most=9, file=file) == (8, 6)
    assert stepped == [[0, 1, 2, 0, 1, 2, 0, 1]] * 4 + [[*[0, 1, 2] * 5, 0]] * 4
    assert json.loads(file.read_text()) == {"8": 1 / 24, "16": 4 / 48} and [*file.parent.iterdir()] == [file]
