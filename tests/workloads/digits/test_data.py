"""Which examples there are, which form a batch, and that every loader hands out the same."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import pytest
import sklearn.datasets
import torch
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.workloads.digits import data
from perfsweep.workloads.digits.config import ROWS
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training import loading


def batches(workload, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [next(workload._portions).batch for _ in range(count)]


def alive(pids: set[int]) -> set[int]:
    """Those that still run; an ended child that nobody has waited for counts as ended."""
    multiprocessing.active_children()
    return {pid for pid in pids if os.path.exists(f"/proc/{pid}")}  # noqa: PTH110


def worker_ids() -> set[int]:
    return {child.pid for child in multiprocessing.active_children() if child.pid is not None}


def test_the_digits_are_those_that_scikit_learn_loads() -> None:
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    ours = data.load_digits()
    assert np.array_equal(ours.images, images)
    assert np.array_equal(ours.labels, labels)
    assert len(ours.labels) == ROWS


def test_without_scikit_learn_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="install scikit-learn"):
        data.load_digits()


def test_held_out_rows_are_never_trained_on_and_no_row_is_lost() -> None:
    numbered = data.RawDigits(np.arange(ROWS)[:, None], np.arange(ROWS))
    train, held_out = numbered.split(1437)
    assert len(train.labels) == 1437
    assert sorted([*train.labels, *held_out.labels]) == list(range(ROWS))
    assert np.array_equal(train.images[:, 0], train.labels)


def test_epochs_and_seeds_differ_and_the_same_seed_repeats() -> None:
    first, again, other_seed = (loading.EpochPlan(100, 10, seed) for seed in (0, 0, 1))
    second_epoch = loading.EpochPlan(100, 10, 0)
    second_epoch.start = 10
    assert list(first) == list(again)
    assert list(first) != list(other_seed)
    assert list(first) != list(second_epoch)


@given(start=st.integers(0, 60))
def test_a_plan_started_within_an_epoch_hands_out_the_rest_of_it(start: int) -> None:
    whole, rest = loading.EpochPlan(100, 8, 3), loading.EpochPlan(100, 8, 3)  # 12 batches to an epoch
    whole.start, rest.start = start // 12 * 12, start
    assert list(rest) == list(whole)[start % 12 :]


def test_two_workers_start_in_setup_and_end_with_close(start, run) -> None:
    before = worker_ids()
    workload = start(num_workers=2)
    workers = worker_ids() - before
    assert len(workers) == 2
    run(workload, 13)  # into the second epoch: the same workers serve it
    assert worker_ids() - before == workers
    workload.close()
    assert alive(workers) == set()


def test_workers_end_when_setup_fails_after_they_have_started(start, monkeypatch) -> None:
    before = worker_ids()
    monkeypatch.setattr(torch.optim, "AdamW", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError) as failure:
        start(num_workers=2)
    workers = worker_ids() - before
    assert len(workers) == 2
    failure.traceback[1].frame.f_locals["workload"].close()
    assert alive(workers) == set()


def test_workers_serve_a_process_that_was_forked_itself(start, run) -> None:
    def trial(answer) -> None:
        workload = start(num_workers=2)
        run(workload, 3)
        counted = workload.counters()["worker_batches"]
        workload.close()
        answer.send((counted, len(multiprocessing.active_children())))

    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    child = fork.Process(target=trial, args=(there,))
    child.start()
    try:
        assert here.poll(timeout=60), "the forked training hangs"
        assert here.recv() == (3, 0)
        child.join(timeout=10)
        assert child.exitcode == 0
    finally:
        child.kill()
        child.join()


def test_loading_leaves_the_global_random_generator_alone(start) -> None:
    workload = start()
    before = torch.get_rng_state()
    batches(workload, 30)
    assert torch.equal(torch.get_rng_state(), before)


@given(rows=st.integers(1, 40), size=st.integers(1, 50))
def test_pieces_hold_every_row_once_in_order(rows: int, size: int) -> None:
    batch = (torch.arange(rows)[:, None], torch.arange(rows))
    pieces = list(loading.pieces_of(size)(batch))
    assert torch.equal(torch.cat([labels for _, labels in pieces]), batch[1])
    assert torch.equal(torch.cat([images for images, _ in pieces]), batch[0])
    assert max(len(labels) for _, labels in pieces) <= size


def test_the_digest_changes_with_a_single_pixel(start) -> None:
    digits = data.load_digits()
    digest = digits.digest()
    assert start().data_digest() == digest
    digits.images[1000, 30] ^= 1
    assert digits.digest() != digest
