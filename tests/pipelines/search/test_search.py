"""The search for the fastest arm, on simulated machines that drift, spike and hold interactions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from machines import Machine

from perfsweep.pipelines.search.factors import Factor, Point
from perfsweep.pipelines.search.measurements import log_times
from perfsweep.pipelines.search.search import (
    Observation,
    Observations,
    Proposal,
    SearchResult,
    _SearchState,
    exhaustive,
    search,
    stack,
)
from perfsweep.pipelines.statistics.log_ratios import Cell

ROUNDS = 3
MACHINE = Machine(node=0.06, drift=0.10, noise=0.04, spikes=0.01)
SIZES = 8

TrueTime = Callable[[Point], float]


def planted(rng: np.random.Generator, toggles: int) -> TrueTime:
    """Log times with main effects of both signs, interactions of toggles and size, an optimum and a cliff."""
    mains = rng.choice([-0.4, -0.2, -0.1, -0.03, 0, 0, 0.05, 0.1], toggles)
    pairs = {
        pair: rng.normal(0, 0.08) for pair in itertools.combinations(range(toggles), 2) if rng.random() < 0.3
    }
    optimum = int(rng.integers(1, SIZES - 1))
    curve = 0.12 * rng.uniform(0.5, 2) * np.abs(np.arange(SIZES) - optimum) ** 1.3
    cliff = int(rng.integers(optimum + 1, SIZES + 1))
    slopes = rng.normal(0, 0.03, toggles) * (rng.random(toggles) < 0.3)

    def log_time(point: Point) -> float:
        size, *on = point
        own = sum((mains[i] + slopes[i] * (size - optimum)) for i in range(toggles) if on[i])
        both = sum(value for (i, j), value in pairs.items() if on[i] and on[j])
        return float(curve[size] + (0.6 if size >= cliff else 0.0) + own + both)

    return log_time


@dataclass
class Simulated:
    """A search on a simulated machine: what it found, and what it took."""

    result: SearchResult
    trials: int
    steps: list[str]


def factors_of(toggles: int, start: int) -> list[Factor]:
    sizes = Factor("size", tuple(2**i for i in range(SIZES)), tuple(float(i) for i in range(SIZES)), start)
    return [sizes, *(Factor(f"t{i}", (None, "on")) for i in range(toggles))]


def simulated(
    factors: list[Factor],
    log_time: TrueTime,
    rng: np.random.Generator,
    *,
    legal: Callable[[Point], bool] = lambda point: True,
    ruled_out: Callable[[Point], str] = lambda point: "",
    machine: Machine = MACHINE,
) -> Simulated:
    """Drive a search; `ruled_out` gives the outcome of arms that break a limit."""
    origin = tuple(factor.start for factor in factors)
    steps = search(factors, legal)
    cells: list[Cell] = []
    asked: dict[Point, None] = {}
    names: list[str] = []
    step = next(steps)
    while True:
        points = list(dict.fromkeys([origin, *step.points]))
        assert all(map(legal, points))
        asked.update(dict.fromkeys(points))
        times = machine.sweep(rng, 1, [log_time(point) - log_time(origin) for point in points[1:]], ROUNDS)[0]
        pack = f"p{len(names):03d}"
        names.append(step.name)
        cells += [
            Cell(pack, n, None, str(p), t)
            for p, row in zip(points, times, strict=True)
            for n, t in enumerate(row)
        ]
        known = log_times([cell for cell in cells if not ruled_out(_point(cell.arm))], str(origin))
        observations: Observations = {
            point: Observation(None, reason=why, outcome=why)
            if (why := ruled_out(point))
            else Observation(known[str(point)].value, known[str(point)].variance)
            for point in asked
            if ruled_out(point) or str(point) in known
        }
        try:
            step = steps.send(observations)
        except StopIteration as end:
            return Simulated(end.value, len(cells), names)


def _point(text: str) -> Point:
    return tuple(int(number) for number in text.strip("()").split(",") if number.strip())


def regret(factors: list[Factor], log_time: TrueTime, best: Point | None) -> float:
    every = itertools.product(*(range(len(factor.values)) for factor in factors))
    assert best is not None
    return log_time(best) - min(map(log_time, every))


def test_five_toggles_and_a_ladder_are_tuned_within_three_percent_by_a_quarter_of_the_trials() -> None:
    regrets, shares, polished = [], [], set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        log_time = planted(rng, 5)
        factors = factors_of(5, int(rng.integers(0, SIZES)))
        done = simulated(factors, log_time, rng)
        regrets.append(regret(factors, log_time, done.result.best))
        shares.append(done.trials / (ROUNDS * exhaustive(factors, lambda point: True)))
        polished |= {name for name in done.steps if name.startswith("polish")}
    assert max(shares) <= 0.25 and polished == {"polish 1", "polish 2", "polish 3"}
    # One of eight may miss: a search within 3 % in nineteen of twenty cases misses twice in 6 % of tests.
    assert sorted(regrets)[-2] <= 0.03
    assert max(regrets) <= 0.10


def test_illegal_combinations_are_never_asked_for_and_a_level_that_needs_another_is_found() -> None:
    factors = factors_of(3, 2)

    def log_time(point: Point) -> float:
        return 0.05 * abs(point[0] - 2) - 0.1 * point[1] - 0.3 * point[2]

    done = simulated(
        factors, log_time, np.random.default_rng(5), legal=lambda point: not point[2] or bool(point[1])
    )
    assert done.result.best == (2, 1, 1, 0)


def test_a_reference_that_breaks_a_limit_ends_the_search_at_once() -> None:
    done = simulated(
        factors_of(5, 0), lambda point: 0.0, np.random.default_rng(0), ruled_out=lambda point: "oom"
    )
    assert done.result.best is None
    assert set(done.steps) == {"ladder"}


LADDER = Factor("size", ("all", 1, 2, 4, 8), (None, 0.0, 1.0, 2.0, 3.0))


def knowing(**observations: Observation) -> _SearchState:
    """A search over a ladder and two toggles that has seen arms, named by the numbers of their values."""
    factors = [LADDER, Factor("t0", (None, "on")), Factor("t1", (None, "on", "more"))]
    state = _SearchState(factors, lambda point: True)
    state.observations = {tuple(map(int, name[1:])): one for name, one in observations.items()}
    return state


def test_a_size_that_ran_out_of_memory_rules_out_it_and_larger_ones_of_the_same_levels() -> None:
    state = knowing(_310=Observation(None, outcome="oom"), _411=Observation(None, outcome="failed"))
    out = [point for point in itertools.product(range(5), (0, 1), range(3)) if state.cannot_fit(point)]
    assert out == [(3, 1, 0), (4, 1, 0)]
    assert not _SearchState(factors_of(2, 0)[1:], lambda point: True).cannot_fit((1, 1))


def test_a_change_is_of_one_toggle_or_to_the_next_size_and_never_to_what_has_left_the_search() -> None:
    state = knowing()
    every = [(2, 1, 2), (2, 0, 0), (2, 0, 1), (1, 0, 2), (3, 0, 2)]
    assert state.changes((2, 0, 2)) == every
    state.dropped = {"t1": "no"}
    assert state.changes((2, 0, 0)) == [(2, 1, 0), (1, 0, 0), (3, 0, 0)]
    assert state.changes((0, 0, 0)) == [(0, 1, 0)], "what is no size has none next to it"
    assert [state.neighbours(LADDER.sizes, number) for number in (1, 4)] == [[2], [3]]


def cost(point: Point) -> float | None:
    """Of an arm with four toggles: two gain more together, one is worth little, and one cannot run."""
    size, t0, t1, out, t3 = point
    gains = 0.2 * t0 + (0.0, 0.1, -0.15)[t1] + 0.5 * t3 * t0 + 0.05 * t0 * (t1 > 0)
    return None if out else 0.3 * abs(size - 3) + 0.3 * t3 - gains


def test_a_search_looks_at_sizes_then_levels_then_all_at_once_and_then_around_the_best() -> None:
    toggles = [Factor(name, (None, "on")) for name in ("t0", "out", "t3")]
    factors = [LADDER, toggles[0], Factor("t1", (None, "on", "more")), *toggles[1:]]
    steps, known, asked = search(factors, lambda point: not (point[2] == 2 and point[4])), {}, []
    proposal = next(steps)
    while True:
        asked.append(proposal)
        for point in (*proposal.points, (0, 0, 0, 0, 0)):
            time = cost(point)
            measured = time is not None and Observation(time - 0.9, 1e-4)
            known[point] = measured or Observation(None, reason="no", outcome="failed")
        try:
            proposal = steps.send(known)
        except StopIteration as end:
            result = end.value
            break
    base, gain, best = (3, 0, 0, 0, 0), (3, 1, 0, 0, 1), (3, 1, 1, 0, 1)
    alone = ((3, 1, 0, 0, 0), (3, 0, 1, 0, 0), (3, 0, 2, 0, 0), (3, 0, 0, 1, 0), (3, 0, 0, 0, 1))
    assert asked == [
        Proposal("ladder", ((1, 0, 0, 0, 0), (2, 0, 0, 0, 0))),
        Proposal("ladder", (base, (4, 0, 0, 0, 0))),
        Proposal("alone", (base, *alone), base),
        Proposal("screen", ((3, 0, 1, 0, 1), gain, (3, 1, 1, 0, 0))),
        Proposal("polish 1", (gain, best, (2, 1, 1, 0, 1), (4, 1, 1, 0, 1)), gain),
    ]
    assert (result.best, result.dropped) == (best, {"out": "no"})
    assert result.best_levels == {"t0": 1, "t1": 1, "t3": 1}
    changes = {("size", 2): 0.3, ("size", 4): 0.3, ("t0", 0): 0.75, ("t1", 0): 0.15, ("t3", 0): 0.2}
    assert result.expected.keys() == {*changes, ("t1", 2)}, "not measured with the others"
    for key, more in changes.items():
        assert result.expected[key] == pytest.approx((more, 0.01), abs=0.005)


def stacked(true: Callable[[Point], float | None], factors: list[Factor], error: float = 0.01) -> tuple:
    """What a search by stacking proposes and finds, where times are `true` with this standard error."""
    proposals, known, steps = stack(factors, lambda point: True), dict[Point, Observation](), []
    proposal = next(proposals)
    while True:
        steps.append(proposal)
        for point in (*proposal.points, tuple(0 for _ in factors)):
            time = true(point)
            known[point] = Observation(time, error**2) if time is not None else Observation(None, reason="no")
        try:
            proposal = proposals.send(known)
        except StopIteration as end:
            return steps, end.value


FACTORS = [Factor("a", (None, 1, 2)), Factor("b", (None, 1)), Factor("c", (None, 1)), Factor("d", (None, 1))]


def test_levels_that_surely_gain_by_themselves_are_measured_together() -> None:
    gains = ({1: -0.1, 2: -0.2}, {1: -0.3}, {1: -0.008}, {1: 0.1})

    def true(point: Point) -> float:
        return sum(gain.get(n, 0.0) for gain, n in zip(gains, point, strict=True))

    steps, result = stacked(true, FACTORS)
    assert [step.name for step in steps] == ["alone", "stack"]
    assert steps[1].points == ((2, 1, 0, 0),), "c may be noise, d costs time"
    assert result.best == (2, 1, 0, 0)


def test_levels_that_exclude_each_other_are_stacked_as_far_as_they_go() -> None:
    proposals = stack(FACTORS, lambda point: not (point[0] and point[1]))
    first = next(proposals)
    times = {(1, 0, 0, 0): -0.1, (0, 1, 0, 0): -0.3, (0, 0, 1, 0): -0.2}
    known = {point: Observation(times.get(point, 0.0), 1e-4) for point in (*first.points, (0, 0, 0, 0))}
    assert proposals.send(known).points == ((0, 1, 1, 0),)


def test_a_level_that_needs_another_and_was_not_measured_alone_is_not_stacked() -> None:
    proposals = stack(FACTORS, lambda point: bool(point[0]) or not point[1])
    first = next(proposals)
    assert (0, 1, 0, 0) not in first.points
    gains = {(1, 0, 0, 0): -0.1, (0, 0, 1, 0): -0.2}
    known = {point: Observation(gains.get(point, 0.0), 1e-4) for point in (*first.points, (0, 0, 0, 0))}
    assert proposals.send(known).points == ((1, 0, 1, 0),)
