"""How often the statistics are wrong on simulated machines.

``PYTHONPATH=tests/support python tests/benchmarks/table_statistics.py``

Whole sweeps go through the code that judges real ones. *calm* drifts 10 % over a sweep, nodes differ by 6 %,
iterations scatter by 5 % and resemble their neighbours; *shared* also has 2 % of iterations 1.5 to 4 times as
long; *processes* differ by 1 % from one process to the next. Seeds are fixed, so the table is always the
same.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

import numpy as np
from machines import CALM, PROCESSES, SHARED, Machine, decided, effects_of, rounds_of

from pipelines.analysis.decisions import decide
from pipelines.statistics.detectable import detectable_effect
from pipelines.statistics.estimates import precise_enough
from pipelines.statistics.verdicts import Verdict

CLAIMS = (Verdict.FASTER, Verdict.SLOWER)
MACHINES = {"calm": CALM, "shared": SHARED, "processes": PROCESSES}
Row = tuple[str, str]


def share(hits: list[bool]) -> str:
    """A share with twice its standard error, in per cent."""
    value = float(np.mean(hits))
    return f"{value:6.1%} +- {2 * math.sqrt(value * (1 - value) / len(hits)):.1%} of {len(hits)}"


def false_claims(sweeps: int) -> Iterator[Row]:
    """Sweeps of equal arms in which any is called faster or slower; margin 0, so that Holm alone holds the
    error."""
    for name, arms, rounds, generations in [
        ("calm", 1, 6, 0),
        ("calm", 12, 10, 0),
        ("shared", 1, 10, 0),
        ("shared", 6, 6, 0),
        ("shared", 12, 6, 0),
        ("shared", 12, 10, 0),
        ("shared", 50, 8, 0),
        ("processes", 1, 25, 5),
        ("processes", 6, 10, 2),
        ("processes", 6, 15, 3),
        ("processes", 12, 25, 5),
    ]:
        times = MACHINES[name].sweep(
            np.random.default_rng(1), sweeps, [0.0] * arms, rounds, generations=generations
        )
        wrong = [
            any(v.verdict in CLAIMS for v in decided(t, generations, 0.0).verdicts.values()) for t in times
        ]
        yield f"{name}, {arms} equal arms, {_length(rounds, generations)}", share(wrong)


def coverage(sweeps: int) -> Iterator[Row]:
    """Plain 95 % intervals that hold the planted effect."""
    planted = [-0.10, 0.0, 0.03]
    for name, rounds, generations in [
        ("calm", 4, 0),
        ("calm", 6, 0),
        ("calm", 10, 0),
        ("calm", 16, 0),
        ("shared", 6, 0),
        ("shared", 10, 0),
        ("shared", 16, 0),
        ("processes", 10, 2),
        ("processes", 15, 3),
        ("processes", 25, 5),
    ]:
        times = MACHINES[name].sweep(
            np.random.default_rng(2), sweeps, planted, rounds, generations=generations
        )
        yield f"{name}, 3 effects, {_length(rounds, generations)}", share(_hits(times, planted, generations))
    yield from adaptive_coverage(sweeps // 4, planted)


def adaptive_coverage(sweeps: int, planted: list[float]) -> Iterator[Row]:
    """Intervals of sweeps that go on until all of them are narrow enough."""
    for target in (0.02, 0.03):
        machine = Machine(noise=0.05, spikes=0.0)
        times = machine.sweep(np.random.default_rng(3), sweeps, planted, 40)
        lengths = [_stopped(t, math.log1p(target)) for t in times]
        hits = [hit for t, n in zip(times, lengths, strict=True) for hit in _hits([t[:, :n]], planted, 0)]
        yield (
            f"calm, 3 effects, until +-{target:.0%}: {np.median(lengths):.0f} rounds in the median",
            share(hits),
        )


def power(sweeps: int) -> Iterator[Row]:
    """Sweeps that find an effect of the size the plan promises to find in 80 %."""
    for arms, rounds in [(1, 6), (1, 10), (6, 6), (6, 8), (12, 10), (50, 8)]:
        effect = detectable_effect(rounds, 0.02, arms, arms * (rounds - 1))
        times = np.exp(np.random.default_rng(4).normal(0, 0.02 / math.sqrt(2), (sweeps, arms + 1, rounds)))
        times[:, 1] *= math.exp(effect)
        found = [decided(t, margin=0.0).verdicts["1"].verdict is Verdict.SLOWER for t in times]
        yield (
            f"{arms} comparisons, {rounds} rounds: {math.expm1(effect):.1%} at 2 % between pairs",
            share(found),
        )


def silence() -> Iterator[Row]:
    """Twelve equal arms, twenty seeds, default margin."""
    for rounds in (6, 10):
        sweeps = [SHARED.sweep(np.random.default_rng(seed), 1, [0.0] * 12, rounds)[0] for seed in range(20)]
        quiet = [not any(v.verdict in CLAIMS for v in decided(t).verdicts.values()) for t in sweeps]
        yield f"shared, 12 equal arms, {rounds} rounds", f"{sum(quiet)} of {len(quiet)} sweeps silent"


def _hits(sweeps: np.ndarray | list[np.ndarray], planted: list[float], generations: int) -> list[bool]:
    hits = []
    for times in sweeps:
        for found, truth in zip(decided(times, generations).estimates.values(), planted, strict=True):
            hits.append(found.interval is not None and found.interval.low <= truth <= found.interval.high)
    return hits


def _stopped(times: np.ndarray, target: float) -> int:
    effects = effects_of(len(times))
    for rounds in range(6, times.shape[1]):
        found = decide(rounds_of(times[:, :rounds]), effects, {}, 0.01).estimates
        if all(precise_enough(one, target) for one in found.values()):
            return rounds
    return times.shape[1]


def _length(rounds: int, generations: int) -> str:
    return f"{generations} generations of {rounds // generations}" if generations else f"{rounds} rounds"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweeps", type=int, default=1000, help="simulated sweeps in each row")
    parser.add_argument("--only", default="", help="sections whose title holds this text")
    arguments = parser.parse_args()
    sweeps = arguments.sweeps
    sections = {
        "sweeps of equal arms with a false claim (at most 5 %)": false_claims(sweeps),
        "intervals that cover (93 to 97 %)": coverage(sweeps),
        "sweeps that find what the plan promises (80 %)": power(sweeps),
        "sweeps of twelve equal arms that call none (19 of 20)": silence(),
    }
    for title, rows in sections.items():
        if arguments.only not in title:
            continue
        print(f"\n{title}")
        for what, value in rows:
            print(f"  {what:<62} {value}", flush=True)


if __name__ == "__main__":
    main()
