"""Batches reach the loop from rows, streams or an own loader, and every toggle of loading keeps them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tiny import INPUTS, ROWS, TARGETS, Train, go_on, parameters, squared_error
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.training import sources
from perfsweep.workloads.training.batches import Share

PAIRS = TensorDataset(INPUTS, TARGETS)


def shuffled(**how: Any) -> DataLoader[Any]:
    return DataLoader(PAIRS, batch_size=24, shuffle=True, **how)


KINDS = ["rows", "loader", "stream", "sampler"]


def losses(workload: Any) -> torch.Tensor:
    return torch.stack(list(workload._losses.history))


class Nested(Dataset[Any]):
    """Rows as mappings of tensors, numbers and words."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"words": "one word", "given": {"x": INPUTS[row], "number": row}, "y": [TARGETS[row]]}


def nested_error(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    assert len(batch["words"]) == len(batch["given"]["number"])
    return squared_error(model, batch["given"]["x"], batch["y"][0])


class Endless(IterableDataset[Any]):
    """Rows one after the other, without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(PAIRS)


def test_rows_may_be_mappings_nested_as_they_like(train: Train) -> None:
    workload = train({"data": Nested(), "loss": nested_error}, steps=3)
    assert torch.equal(losses(workload), losses(train(steps=3)))
    assert workload.progress() == 72


def test_rows_without_tensors_are_refused(train: Train) -> None:
    with pytest.raises(ConfigError, match=r"a row of the data is a str .*Parts\(collate=\.\.\.\)"):
        train({"data": ["a"] * 30}, steps=1)


def test_rows_of_several_lengths_are_put_together_by_collate(train: Train) -> None:
    ragged = [INPUTS[row, : 1 + row % 8] for row in range(ROWS)]

    def padded(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return {"x": torch.nn.functional.pad(x, (0, 8 - x.shape[1]))}

    fields = {
        "data": ragged,
        "collate": padded,
        "loss": lambda model, batch: model(batch["x"]).square().mean(),
    }
    held_out = {"held_out": ragged[:5], "evaluate": lambda model, batch: {"rows": len(batch["x"])}}
    workload = train({**fields, **held_out}, steps=2)
    assert workload.numbers()["rows"] == 5
    assert workload.probe()["x"].shape == (24, 8)
    assert len(workload.data_digest()) == 64


def test_a_loader_of_ones_own_gives_its_batches_ragged_ones_too(train: Train) -> None:
    workload = train({"loader": lambda **how: DataLoader(PAIRS, batch_size=24, **how)}, steps=3)
    assert workload.progress() == ROWS  # 24 + 24 + 22
    by_hand = squared_error(workload.model, INPUTS[:24], TARGETS[:24])
    go_on(workload, 1)  # the second epoch begins at the first row
    assert torch.equal(losses(workload)[3], by_hand.detach())


def test_loader_toggles_reach_the_loader_by_the_keywords_of_its_constructor(train: Train) -> None:
    given: list[dict[str, Any]] = []

    def loader(**how: Any) -> DataLoader[Any]:
        given.append(how)
        return DataLoader(PAIRS, batch_size=24, **{**how, "pin_memory": False})

    train({"loader": loader})
    train({"loader": loader}, num_workers=2, pin_memory="on")
    names = ("num_workers", "pin_memory", "persistent_workers")
    assert [[how[name] for name in names] for how in given] == [[0, False, False], [2, True, True]]


@pytest.mark.parametrize(
    "fields", [{}, {"loader": shuffled}, {"data": Endless()}, {"sampler": RandomSampler(PAIRS)}], ids=KINDS
)
def test_workers_hand_out_the_same_batches_whatever_they_come_from(train: Train, fields: Any) -> None:
    naive, parallel = train(fields, steps=7), train(fields, steps=7, num_workers=2)
    assert torch.equal(losses(naive), losses(parallel))
    assert (naive.counters()["worker_batches"], parallel.counters()["worker_batches"]) == (0, 7)


@pytest.mark.parametrize(
    "fields", [{}, {"loader": shuffled}, {"data": Endless()}, {"sampler": RandomSampler(PAIRS)}], ids=KINDS
)
@pytest.mark.parametrize("stop", [3, 6])  # of a loader two whole epochs are six batches, of others three
def test_a_training_resumes_wherever_batches_come_from(train: Train, fields: Any, stop: int) -> None:
    whole, before, after = train(fields, steps=11), train(fields, steps=stop), train(fields)
    after.load_state_dict(before.state_dict())
    go_on(after, 11 - stop)
    assert torch.equal(parameters(after), parameters(whole))


def test_epochs_of_a_shuffled_loader_differ_and_seeds_too(train: Train) -> None:
    seen: list[tuple[float, ...]] = []

    def noting(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(y.flatten().tolist()))
        return squared_error(model, x, y)

    for seed in (0, 1):
        train({"loader": shuffled, "loss": noting}, steps=6, seed=seed)
    assert len({frozenset(batch) for batch in seen}) == 12


def test_a_sampler_says_which_rows_are_trained_on(train: Train) -> None:
    seen: set[float] = set()

    def noting(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.update(y.flatten().tolist())
        return squared_error(model, x, y)

    train({"sampler": SubsetRandomSampler(range(10)), "loss": noting}, steps=6, batch_size=5)
    assert seen == set(TARGETS[:10].flatten().tolist())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampler": (row for row in range(30))}, r"Parts\(sampler=\.\.\.\) has no length"),
        ({"sampler": range(5)}, "must be from 1 to 5"),
        ({"sampler": range(30), "data": Endless()}, "the data are a stream"),
        ({"data": object()}, "the data set has no length"),
        ({"data": iter(())}, "gave no batch in epoch 0"),
        ({"loader": lambda **how: iter([INPUTS])}, "gave no batch in epoch 1"),
    ],
    ids=[
        "unsized sampler",
        "small sampler",
        "sampler of a stream",
        "no data set",
        "empty stream",
        "loader that ends",
    ],
)
def test_data_that_cannot_fill_batches_are_refused(train: Train, fields: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train({"loss": lambda model, x, *y: model(x).mean(), **fields}, steps=2)


def test_the_probe_and_the_digest_need_no_row_numbers(train: Train) -> None:
    class Reversed(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(TensorDataset(INPUTS.flip(0), TARGETS.flip(0)))

    kinds = (range(3), Nested(), Endless(), iter(()), {1, 2}, object())  # a set has a length, and no numbers
    assert [sources.is_stream(one) for one in kinds] == [False, False, True, True, True, False]
    stream, other = train({"data": Endless()}), train({"data": Reversed()})
    assert torch.equal(stream.probe()[0], INPUTS[:24])
    assert stream.data_digest() == train({"data": Endless()}, seed=5).data_digest() != other.data_digest()


def test_the_probe_of_a_loader_is_its_first_batch_and_the_digest_that_of_any_seed(train: Train) -> None:
    one, again, other = (train({"loader": shuffled}, seed=seed) for seed in (1, 1, 2))
    go_on(again, 4)
    assert torch.equal(one.probe()[0], again.probe()[0])
    assert one.data_digest() == again.data_digest() == other.data_digest()
    changed = TensorDataset(INPUTS + 1, TARGETS)
    assert one.data_digest() != train({"loader": lambda **how: DataLoader(changed, 24, **how)}).data_digest()


def test_rows_that_draw_at_random_have_one_digest_and_disturb_no_draws(train: Train) -> None:
    class Noisy(Nested):
        def __getitem__(self, row: int) -> Any:
            return INPUTS[row] + torch.randn(8) + random.random(), TARGETS[row]

    workload = train({"data": Noisy()})
    first = workload.data_digest()
    go_on(workload, 1)
    drawn = torch.get_rng_state(), random.getstate()
    assert workload.data_digest() == first
    workload.probe()
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert random.getstate() == drawn[1]


def test_held_out_rows_are_evaluated_batch_after_batch(train: Train) -> None:
    """Five rows by two, two and one: figures are means over rows, not over batches."""
    held_out = {"held_out": TensorDataset(INPUTS[:5], TARGETS[:5])}
    sizes: list[int] = []

    def error(model: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
        sizes.append(len(x))
        return {"error": squared_error(model, x, y).item()}

    at_once = train({**held_out, "evaluate": error}).numbers()["error"]
    assert sizes == [5, 5]  # in set-up, and when asked
    in_batches = train({**held_out, "evaluate": error, "evaluate_batch": 2}).numbers()["error"]
    assert sizes[2:] == [2, 2, 1] * 2
    assert in_batches == pytest.approx(at_once, rel=1e-5)


def test_held_out_rows_may_be_a_stream(train: Train) -> None:
    fields = {"held_out": Endless(), "evaluate": lambda model, x, y: {"rows": float(len(x))}}
    assert train(fields).numbers()["rows"] == ROWS
    # means over rows of batches of 40 and 30
    by_batch = train({**fields, "evaluate_batch": 40}).numbers()["rows"]
    assert by_batch == pytest.approx((40 * 40 + 30 * 30) / 70)


@pytest.mark.parametrize("rows", [3, 7, 24])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_every_row_of_a_batch_once(rows: int, world: int) -> None:
    shares = [Share(rank, world) for rank in range(world)]
    assert [row for share in shares for row in share.of_rows(list(range(rows)))] == list(range(rows))
    cut = torch.cat([share.of_batch({"x": torch.arange(rows)})["x"] for share in shares])
    assert cut.tolist() == list(range(rows))


def test_a_batch_with_fewer_rows_than_ranks_is_refused() -> None:
    with pytest.raises(ConfigError, match="shares a batch of 1 rows, and each rank needs one"):
        Share(0, 2).of_batch(torch.zeros(1))


def test_what_is_drawn_at_random_inside_depends_on_the_seed_and_nothing_outside_on_it() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(np.random.random()), float(torch.rand(()))

    def drawn(seed: int) -> tuple[float, float, float]:
        with sources.fixed_draws(seed):
            return draw()

    with sources.fixed_draws(5):
        undisturbed = draw(), draw()
    with sources.fixed_draws(5):
        disturbed = draw(), drawn(1), draw()
    assert (disturbed[0], disturbed[2]) == undisturbed
    assert disturbed[1] == drawn(1)
    assert all(one != other for one, other in zip(drawn(1), drawn(2), strict=True))
