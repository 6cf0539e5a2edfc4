"""What turns within a round are worth where a neighbour comes and goes: simulated rounds of two versions.

The neighbour is that of two crowded cores: while it is there, an iteration takes half as long again, and it
stays for some forty iterations; besides, each iteration scatters by a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.records import Effect

ROUNDS, ITERATIONS, TURNS = 6, 300, 100
MARGIN = math.log1p(0.05)
EFFECT = Effect(id="e", design="one_at_a_time", toggle="commit", level="head", pairs=(("head", "base"),))


def crowded_times(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count] times of iterations one after the other, relative to those on a core of their own."""
    comes_or_goes = rng.random(count) < 1 / 40
    there = (np.cumsum(comes_or_goes) + rng.integers(2)) % 2
    return np.where(there, 1.5, 1.0) * np.exp(0.1 * rng.standard_normal(count))


def half_width_and_log_ratio(rng: np.random.Generator, turns: int, change: float) -> tuple[float, float]:
    """The 95 % interval of six rounds, each with a server of its own, of a head with a planted log ratio."""
    cells = [cell for number in range(ROUNDS) for cell in a_round(rng, number, turns, change)]
    estimate = Rounds(cells, "ns_per_unit").estimate(EFFECT)
    assert estimate.interval is not None
    return estimate.interval.half_width, estimate.log_ratio


def a_round(rng: np.random.Generator, number: int, turns: int, change: float) -> Iterator[Cell]:
    """Mean times of the two versions, which take turns on one core, in random order in each cycle."""
    length = ITERATIONS // turns
    cycles = [rng.permutation(["base", "head"]) for _ in range(turns)]
    owners = np.concatenate([np.repeat(cycle, length) for cycle in cycles])
    times = crowded_times(rng, len(owners))
    for arm, factor in (("base", 1.0), ("head", math.exp(change))):
        yield Cell("p000", number, number, arm, float(times[owners == arm].mean()) * factor)


@pytest.mark.parametrize("change", [0.0, -math.log(1.05)], ids=["without effect", "5 % faster"])
def test_turns_decide_in_six_rounds_what_one_region_after_the_other_leaves_open(change: float) -> None:
    rng = np.random.default_rng(26)
    in_turns = [half_width_and_log_ratio(rng, TURNS, change) for _ in range(30)]
    whole = [half_width_and_log_ratio(rng, 1, change) for _ in range(30)]
    assert np.mean([half <= MARGIN / 2 for half, _ in in_turns]) >= 0.95
    assert np.mean([half <= MARGIN / 2 for half, _ in whole]) <= 0.05
    missed = np.mean([abs(ratio - change) > half for half, ratio in in_turns])
    assert missed <= 0.12, "intervals are narrower, and cover as often"


def test_effects_compare_figures_of_one_kind() -> None:
    """Others had half of the core: an arm from whose time that cannot be subtracted is not twice as slow."""
    rng = np.random.default_rng(1)
    cells = []
    for number in range(8):
        busy = 2 * math.exp(0.01 * rng.standard_normal())
        for arm in ("base", "head", "workers"):
            own = math.exp(0.01 * rng.standard_normal())
            plain = own * busy
            cells.append(
                Cell(
                    "p000",
                    number,
                    number,
                    arm,
                    plain if arm == "workers" else own,
                    None if arm == "workers" else plain,
                )
            )
    table = Rounds(cells, "ns_per_unit")
    workers = Effect(id="w", design="", toggle="", level="", pairs=(("workers", "base"),))
    assert abs(table.estimate(workers).log_ratio) < 0.02
    assert abs(table.estimate(EFFECT).log_ratio) < 0.02
    assert {round(pair.log_ratio, 1) for pair in table.pairs(workers)} == {0.0}


@pytest.mark.parametrize(("server_sd", "counted"), [(0.0, 12), (0.1, 4)])
def test_rounds_are_counted_where_servers_do_not_differ_and_servers_where_they_do(
    server_sd: float, counted: int
) -> None:
    rng = np.random.default_rng(5)
    arms = [f"arm{i}" for i in range(6)]
    cells = []
    for server in range(4):
        own = {arm: server_sd * rng.standard_normal() for arm in arms}
        cells += [
            Cell("p000", 3 * server + i, server, arm, math.exp(own[arm] + 0.01 * rng.standard_normal()))
            for i in range(3)
            for arm in arms
        ]
    effect = Effect(id="e", design="", toggle="", level="", pairs=(("arm1", "arm0"),))
    table = Rounds(cells, "ns_per_unit")
    assert table.estimate(effect).n == counted
    assert table.layout is not None
