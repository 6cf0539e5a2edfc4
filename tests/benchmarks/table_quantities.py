"""How often intervals of tails and of time to quality hold the truth, on simulated machines, as Markdown.

``PYTHONPATH=tests/support python tests/benchmarks/table_quantities.py``

What is simulated goes through the code that judges real sweeps. Tails: 300 steps in each of 10 rounds on
five servers, lognormal steps of 5 %, rounds that drift by 10 %, servers that add 1 % to an arm. Time to
quality: paired seeds that share a good part of their steps, and a time of a step from five servers of two
rounds. Seeds are fixed; in brackets stand two standard errors of the simulation.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from machines import TRIALS, effects_of, rounds_of

from pipelines.statistics.paired_steps import paired_steps
from pipelines.statistics.step_percentiles import LEAST_STEPS, percentile
from pipelines.statistics.time_to_target import time_to_target

PERCENTILES = (50.0, 95.0, 99.0)
Table = Iterator[Sequence[str]]


def share(values: Sequence[bool]) -> str:
    """A share with two standard errors of its simulation."""
    found = np.asarray(values, float)
    return f"{found.mean():.3f} ({2 * found.std() / math.sqrt(len(found)):.3f})" if len(found) else ""


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
    slow: float = 0.02
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


def tails(sweeps: int) -> Table:
    """Coverage of p50, p95 and p99 where arms differ in their tails, and where neighbours are alike."""
    yield "steps of base and arms", *(f"p{at:g}" for at in PERCENTILES)
    wider = replace(BASE, noise=0.08)
    fewer, more = replace(BASE, slow=0.002), replace(BASE, slow=0.04, level=-0.2)
    rows: dict[str, tuple[Sequence[StepTimes], int, int, int]] = {
        "no slow steps": ([replace(BASE, slow=0.0)] * 4, 10, 5, LEAST_STEPS),
        "2 % slow steps": ([BASE] * 4, 10, 5, LEAST_STEPS),
        "2 %, against 0.2 % and 4 %, and wider": ([BASE, fewer, more, wider], 10, 5, LEAST_STEPS),
        "the same, 1,000 steps": ([BASE, fewer, more, wider], 10, 5, 1000),
        "the same, ten servers": ([BASE, fewer, more, wider], 10, 10, LEAST_STEPS),
        "neighbours alike by 0.9": ([replace(BASE, correlation=0.9)] * 4, 10, 5, LEAST_STEPS),
        "one arm alone": ([BASE, more], 10, 5, LEAST_STEPS),
        "no goal: exactly 1 % slow steps": ([BASE, replace(BASE, slow=0.01)], 10, 5, LEAST_STEPS),
    }
    for name, (arms, rounds, servers, steps) in rows.items():
        rng = np.random.default_rng(11)
        found = [held_tails(rng, arms, rounds, servers, steps) for _ in range(sweeps)]
        yield name, *(share([np.mean(one[place]) for one in found]) for place in range(len(PERCENTILES)))


@dataclass(frozen=True)
class Trainings:
    """Steps to a target: `shared` is what a seed does to both arms, `own` to one; log standard deviations."""

    seeds: int = 10
    missed: float = 0.0
    log_ratio: float = 0.1
    shared: float = 0.2
    own: tuple[float, float] = (0.15, 0.15)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Steps of arm and base by seed, infinite where missed, and the cap."""
        seed = rng.normal(0, self.shared, self.seeds)
        logs = 6.0 + seed + np.array([[self.log_ratio], [0.0]])
        logs += rng.standard_normal((2, self.seeds)) * np.array(self.own)[:, None]
        slower = 0 if self.log_ratio > 0 else 1
        scatter = math.hypot(self.shared, self.own[slower])
        cap = math.inf
        if self.missed:
            cap = math.exp(6.0 + max(self.log_ratio, 0.0) + scatter * NormalDist().inv_cdf(1 - self.missed))
        steps = np.where(np.exp(logs) > cap, math.inf, np.exp(logs))
        return steps[0], steps[1], cap


STEP_RATIO = -0.3


def held_time(rng: np.random.Generator, trainings: Trainings, *, dropped: bool = False) -> bool | None:
    """Whether the interval of one sweep's time to quality holds the truth; None where it has no ratio."""
    arm, base, cap = trainings.draw(rng)
    if dropped:
        there = np.isfinite(arm) & np.isfinite(base)
        arm, base = arm[there], base[there]
    steps = paired_steps(arm, base, cap)
    if steps is None:
        return None
    machine = replace(TRIALS, noise=0.02, process=0.01)
    times = machine.sweep(rng, 1, [STEP_RATIO, 0.0], 10, 1, 5)[0]
    found = time_to_target(steps, rounds_of(times, 5).estimate(effects_of(3)[0]))
    if found is None or found.interval is None:
        return None
    return found.interval.low <= trainings.log_ratio + STEP_RATIO <= found.interval.high


def quality(sweeps: int) -> Table:
    """Coverage of time to quality by seeds and by the share of runs that miss the target."""
    yield "trainings", "coverage", "sweeps with a ratio", "were missed runs dropped"
    rows = {
        f"{seeds} seeds, {missed:.0%} of the slower arm's runs miss the target": Trainings(seeds, missed)
        for seeds in (5, 10, 20)
        for missed in (0.0, 0.05, 0.1, 0.15)
    }
    ten = Trainings(10, 0.1)
    rows |= {
        "10 seeds, 10 %: equal arms": replace(ten, log_ratio=0.0),
        "10 seeds, 10 %: an arm of a third more steps": replace(ten, log_ratio=0.3),
        "10 seeds, 10 %: an arm of fewer steps": replace(ten, log_ratio=-0.3),
        "10 seeds, 10 %: seeds share nearly all": replace(ten, shared=0.3, own=(0.05, 0.05)),
        "10 seeds, 10 %: seeds share little": replace(ten, shared=0.05, own=(0.2, 0.2)),
        "10 seeds, 10 %: the arm scatters twice as much": replace(ten, own=(0.2, 0.1)),
    }
    for name, trainings in rows.items():
        kept = _swept(sweeps, trainings)
        dropped = share(_swept(sweeps, trainings, dropped=True)[0]) if trainings.missed else ""
        yield name, share(kept[0]), f"{kept[1]:.2f}", dropped


def _swept(sweeps: int, trainings: Trainings, *, dropped: bool = False) -> tuple[list[bool], float]:
    rng = np.random.default_rng(12)
    found = [held_time(rng, trainings, dropped=dropped) for _ in range(sweeps)]
    told = [one for one in found if one is not None]
    return told, len(told) / sweeps


SECTIONS: dict[str, Callable[[int], Table]] = {
    "Coverage of tails (goal .93 to .97)": tails,
    "Coverage of time to quality (goal .93 to .97)": quality,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=1000, help="simulated sweeps in each cell")
    parser.add_argument("--only", default="", help="sections whose title holds this text")
    arguments = parser.parse_args()
    for title, table in SECTIONS.items():
        if arguments.only.lower() in title.lower():
            print(f"\n### {title}\n")
            for number, row in enumerate(table(arguments.sweeps)):
                print(f"| {' | '.join(row)} |", flush=True)
                if number == 0:
                    print("|---" * len(row) + "|")


if __name__ == "__main__":
    main()
