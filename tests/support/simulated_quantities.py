"""Simulated steps with tails, stalls, and trainings to a target, judged by the shipped code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from machines import TRIALS, effects_of, rounds_of

from perfsweep.pipelines.analysis.iteration_series import share_estimate
from perfsweep.pipelines.statistics.log_ratios import Cell
from perfsweep.pipelines.statistics.paired_steps import paired_steps, percentile, time_to_target

PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True)
class StepTimes:
    """Steps of an arm: lognormal, alike among neighbours, and some slow ones.

    Attributes
    ----------
    level : log of the median
    noise, correlation : of log times, and of neighbours
    slow, factor : share of steps that take so many times as long, give or take a tenth
    """

    level: float = 0.0
    noise: float = 0.05
    correlation: float = 0.3
    slow: float = 0.1
    factor: float = 3.0

    def draw(self, rng: np.random.Generator, rounds: int, steps: int) -> np.ndarray:
        """Step times [rounds, steps]."""
        shocks = rng.standard_normal((steps, rounds))
        for i in range(1, steps):
            rest = math.sqrt(1 - self.correlation**2)
            shocks[i] = self.correlation * shocks[i - 1] + rest * shocks[i]
        logs = self.level + self.noise * shocks.T
        hit = rng.random(logs.shape) < self.slow
        return np.exp(logs + hit * (math.log(self.factor) + 0.1 * rng.standard_normal(logs.shape)))

    def quantile(self, at: float) -> float:
        """Log of the true percentile, by bisection of the mixture's distribution."""
        body, tail = NormalDist(self.level, self.noise), self._tail()
        low, high = self.level - 2.0, self.level + 4.0
        for _ in range(80):
            middle = (low + high) / 2
            below = (1 - self.slow) * body.cdf(middle) + self.slow * tail.cdf(middle)
            low, high = (middle, high) if below < at / 100 else (low, middle)
        return low

    def _tail(self) -> NormalDist:
        return NormalDist(self.level + math.log(self.factor), math.hypot(self.noise, 0.1))


BASE = StepTimes()


def held_tails(
    rng: np.random.Generator, arms: Sequence[StepTimes], rounds: int, servers: int, steps: int
) -> list[list[bool]]:
    """Whether each interval of a sweep holds the truth, by percentile and arm; the first arm is the base."""
    drift = np.exp(rng.normal(0, 0.1) * np.linspace(0, 1, rounds))
    layout = np.exp(rng.normal(0, 0.01, (len(arms), servers))).repeat(rounds // servers, axis=1)
    times = [
        one.draw(rng, rounds, steps) * (drift * own)[:, None] for one, own in zip(arms, layout, strict=True)
    ]
    held = []
    for at in PERCENTILES:
        table = rounds_of(np.array([[percentile(row, at) for row in one] for one in times]), servers)
        row = []
        for effect, arm in zip(effects_of(len(arms)), arms[1:], strict=True):
            interval = table.estimate(effect).interval
            truth = arm.quantile(at) - arms[0].quantile(at)
            row.append(interval is not None and interval.low <= truth <= interval.high)
        held.append(row)
    return held


@dataclass(frozen=True)
class Waiting:
    """The share of a round that an arm waits, and log standard deviations of rounds and servers."""

    share: float = 0.2
    noise: float = 0.03
    server: float = 0.01
    spikes: float = 0.0  # rounds that wait half as long again


def held_share(rng: np.random.Generator, one: Waiting, rounds: int, servers: int) -> bool:
    """Whether the interval of an arm's stall holds the share that was planted."""
    server = rng.normal(0, one.server, servers).repeat(rounds // servers)
    spikes = math.log(1.5) * (rng.random(rounds) < one.spikes)
    shares = one.share * np.exp(rng.normal(0, one.noise, rounds) + server + spikes)
    draws = np.arange(servers).repeat(rounds // servers)
    cells = [Cell("p", i, int(draws[i]), "arm", float(shares[i])) for i in range(rounds)]
    interval = share_estimate(cells).interval
    return interval is not None and interval.low <= math.log(one.share) <= interval.high


LOG_STEPS = 6.0
"""Of a middling seed."""


@dataclass(frozen=True)
class Trainings:
    """Steps to a target: `shared` is what a seed does to both arms, `own` to one; log standard deviations.

    They are known to the next look, and looks are `every` this share of the steps of a middling seed.
    """

    seeds: int = 10
    missed: float = 0.0
    log_ratio: float = 0.1
    shared: float = 0.2
    own: tuple[float, float] = (0.15, 0.15)
    every: float = 0.0

    @property
    def look(self) -> float:
        """Steps between two looks."""
        return self.every * math.exp(LOG_STEPS)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Steps of arm and base by seed, infinite where missed, and the cap."""
        seed = rng.normal(0, self.shared, self.seeds)
        logs = LOG_STEPS + seed + np.array([[self.log_ratio], [0.0]])
        logs += rng.standard_normal((2, self.seeds)) * np.array(self.own)[:, None]
        slower = 0 if self.log_ratio > 0 else 1
        scatter = math.hypot(self.shared, self.own[slower])
        cap = math.inf
        if self.missed:
            beyond = scatter * NormalDist().inv_cdf(1 - self.missed)
            cap = math.exp(LOG_STEPS + max(self.log_ratio, 0.0) + beyond)
        steps = np.where(np.exp(logs) > cap, math.inf, np.exp(logs))
        if self.look:
            steps = np.ceil(steps / self.look) * self.look
        return steps[0], steps[1], cap


STEP_RATIO = -0.3


def held_time(rng: np.random.Generator, trainings: Trainings, *, dropped: bool = False) -> bool | None:
    """Whether the interval of one sweep's time to quality holds the truth; None where it has no ratio."""
    arm, base, cap = trainings.draw(rng)
    if dropped:
        there = np.isfinite(arm) & np.isfinite(base)
        arm, base = arm[there], base[there]
    steps = paired_steps(arm, base, cap, trainings.look)
    if steps is None:
        return None
    machine = replace(TRIALS, noise=0.02, process=0.01)
    times = machine.sweep(rng, 1, [STEP_RATIO, 0.0], 10, 1, 5)[0]
    found = time_to_target(steps, rounds_of(times, 5).estimate(effects_of(3)[0]))
    if found is None or found.interval is None:
        return None
    return found.interval.low <= trainings.log_ratio + STEP_RATIO <= found.interval.high
