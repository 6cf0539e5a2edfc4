"""Climbing a ladder: fastest size, cliff and largest that fits, from as few measurements as possible."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.search.factors import ladder_factor
from perfsweep.pipelines.search.ladders import LadderResult, SizeResult, fastest, sizes_of
from perfsweep.pipelines.search.search import Observation, explore
from perfsweep.workloads.api import Level, Numbers, Toggle
from perfsweep.workloads.errors import ConfigError

MIB = 2**20


def climbed(
    time_of,
    sizes: list[int],
    *,
    memory_of=lambda size: 100 * MIB,
    there: int | None = None,
    budget: int | None = None,
    limit: int = 10,
) -> tuple[LadderResult, list[int]]:
    """A search over a machine whose times and memory are known, and the sizes that it measured in order.

    `there` is the memory that the machine has, `budget` what the search knows of it.
    """
    factor = ladder_factor("size", sizes, sizes[0])
    steps = explore(factor, budget, limit)
    observations, measured = {}, []
    step = next(steps)
    while True:
        for point in step.points:
            size = int(factor.values[point[0]])  # type: ignore[arg-type]
            measured.append(size)
            peak = memory_of(size)
            fits = there is None or peak <= there
            observations[point] = (
                Observation(math.log(time_of(size) / time_of(sizes[0])), 1e-6, peak_bytes=peak)
                if fits
                else Observation(None, reason="no memory", outcome="oom")
            )
        try:
            step = steps.send(observations)
        except StopIteration as end:
            return end.value, measured


POWERS = [2**i for i in range(11)]


@pytest.mark.parametrize("optimum", [4, 64, 512])
def test_a_planted_optimum_and_its_cliff_are_found_within_ten_measurements(optimum: int) -> None:
    def time_of(size: int) -> float:
        return (1 + 0.08 * abs(math.log2(size / optimum))) * (1.8 if size > optimum else 1.0)

    found, measured = climbed(time_of, POWERS)
    assert len(measured) <= 10
    assert found.fastest is not None and found.fastest.size == optimum
    assert found.cliff is not None and (found.cliff[0].size, found.cliff[1].size) == (optimum, 2 * optimum)


@pytest.mark.parametrize("budget_known", [True, False])
def test_the_largest_size_that_fits_is_found_and_what_stops_the_next_one(budget_known: bool) -> None:
    there = 800 * MIB
    found, measured = climbed(
        lambda size: 1 / math.log2(size + 1),
        POWERS,
        memory_of=lambda size: (100 + 5 * size) * MIB,
        there=there,
        budget=there if budget_known else None,
    )
    assert found.largest is not None and found.largest.size == 128
    assert found.sure
    assert len(measured) <= 10
    assert (256 in measured) is not budget_known, "a size that memory predicts not to fit is hopeless"
    assert budget_known is (found.skipped.get(256) == pytest.approx((100 + 5 * 256) * MIB))


@pytest.mark.parametrize(("budget", "tried"), [(None, [1024]), (9, [64, 256, 512, 1024])])
def test_without_a_budget_the_largest_size_is_tried_and_with_one_what_is_left_is_halved_as_no_peak_is_known(
    budget: int | None, tried: list[int]
) -> None:
    found, measured = climbed(float, POWERS, memory_of=lambda size: None, budget=budget)
    assert (found.sure, measured) == (True, [1, 4, 2, *tried])


@pytest.mark.parametrize(("error", "size"), [(0.0, 4), (0.006, 4), (0.008, 2), (0.1, 2)])
def test_sizes_within_twice_the_error_of_their_difference_are_equal(error: float, size: int) -> None:
    results = {size: SizeResult(size, value, error) for size, value in ((1, 0.0), (2, -0.10), (4, -0.12))}
    best = fastest(results)
    assert best is not None and best.size == size


def test_where_memory_predicted_wrongly_what_is_left_is_halved() -> None:
    """Up to 8 all is as cheap as memory says, and then nothing is: each further guess would be the last."""
    found, measured = climbed(
        lambda size: 1.0 if size == 1 else 2.0,
        POWERS,
        memory_of=lambda size: (100 + size if size <= 8 else 9000) * MIB,
        there=2000 * MIB,
        budget=2000 * MIB,
    )
    assert found.sure and found.largest is not None and found.largest.size == 8
    assert measured[measured.index(1024) :] == [1024, 64, 16, 8]


@pytest.mark.parametrize(
    ("toggle", "given", "words"),
    [
        (Toggle("amp", (Level("off"), Level("bf16")), ""), [], "amp is no ladder: it has no range of sizes"),
        (
            Toggle("share", (Level(0),), "", "", Numbers(0, 1, integer=False)),
            [],
            "its numbers are not integers",
        ),
        (Toggle("size", (Level("all"),), "", "", Numbers(1, 8)), [9], "is not a level of size"),
        (Toggle("size", (Level("all"),), "", "", Numbers(1, 8)), ["all"], "is no size of a ladder"),
    ],
)
def test_what_is_no_ladder_is_refused_with_its_levels(toggle: Toggle, given: list, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sizes_of(toggle, given)
