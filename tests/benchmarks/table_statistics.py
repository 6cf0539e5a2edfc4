"""How often the statistics are wrong on simulated machines: tables of docs/results/statistics.md.

``PYTHONPATH=tests/support python tests/benchmarks/table_statistics.py``

Whole sweeps go through the code that judges real ones. Unless a row says otherwise a trial scatters by 1 %,
the machine drifts by 10 % over a sweep, and *layout* is what a server adds to all trials of an arm; 5 x 2
means five servers of two rounds. Seeds are fixed, so that the tables are always the same; in brackets stand
two standard errors of the simulation, taken over sweeps, since the arms of one share their base.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from unittest.mock import patch

import numpy as np
from machines import (
    CLAIMS,
    SHARED,
    TRIALS,
    Machine,
    addressed,
    claims_falsely,
    decided,
    generations,
    held_by,
    hits,
    measured_until,
)

from perfsweep.pipelines.statistics import arm_variance
from perfsweep.pipelines.statistics.arm_variance import Level
from perfsweep.pipelines.statistics.claim_rules import ANY_GAIN, Ruling, rule_claim
from perfsweep.pipelines.statistics.estimates import detectable_effect, pair_error
from perfsweep.pipelines.statistics.verdicts import Verdict

LAYOUTS = (0.0, 0.005, 0.01, 0.02, 0.05)
DESIGNS = ((5, 2), (10, 1), (2, 5))
SPIKES = 0.06
PAIRS = replace(TRIALS, noise=0.02 / math.sqrt(2))  # pairs that scatter by 2 %
NONE: Mapping[int, float] = MappingProxyType({})
Table = Iterator[Sequence[str]]


def share(values: np.ndarray) -> str:
    """A share with two standard errors of its mean over sweeps (the first axis)."""
    sweeps = np.asarray(values, float).reshape(len(values), -1).mean(axis=1)
    return f"{sweeps.mean():.3f} ({2 * sweeps.std() / math.sqrt(len(sweeps)):.3f})"


def covered(
    sweeps: int,
    arms: int,
    servers: int,
    each: int,
    machine: Machine = TRIALS,
    loud: Mapping[int, float] = NONE,
    moved: Mapping[int, float] = NONE,
) -> str:
    """Share of plain 95 % intervals of a machine's sweeps that hold the planted effect."""
    planted = list(np.linspace(-0.1, 0.1, arms))
    rng = np.random.default_rng(2)
    times = machine.sweep(rng, sweeps, planted, servers * each, 1, servers, loud, moved)
    held = hits(times, planted, servers)
    # Of an odd arm only its own interval is of interest; an odd base is in all of them.
    own = [arm - 1 for arm in (*loud, *moved) if arm]
    return share(held[:, own] if own else held)


def coverage_by_layout(sweeps: int) -> Table:
    """Coverage for every layout, number of arms and design."""
    columns = [(arms, *design) for arms in (6, 12) for design in DESIGNS]
    yield "layout", *(f"{arms} arms, {servers} x {each}" for arms, servers, each in columns)
    for layout in LAYOUTS:
        machine = replace(TRIALS, process=layout)
        yield f"{layout:.1%}", *(covered(sweeps, *column, machine) for column in columns)


def coverage_when_disturbed(sweeps: int) -> Table:
    """Coverage of machines and arms that break what the method assumes."""
    columns = [(6, 5, 2), (12, 5, 2), (6, 10, 1), (6, 2, 5)]
    yield "", *(f"{arms} arms, {servers} x {each}" for arms, servers, each in columns)
    uneven = replace(TRIALS, process=0.01)
    rows: dict[str, tuple[Machine, Mapping[int, float], Mapping[int, float]]] = {
        "one arm three times as noisy": (TRIALS, {3: 3.0}, NONE),
        "one arm three times as noisy, layout 1 %": (uneven, {3: 3.0}, NONE),
        "the base three times as noisy": (TRIALS, {0: 3.0}, NONE),
        "drift of 30 %": (replace(TRIALS, drift=0.3), NONE, NONE),
        "spikes: 6 % of trials take 1.5 to 4 times as long": (replace(PAIRS, spikes=SPIKES), NONE, NONE),
        "neighbouring trials correlated by 0.9": (replace(TRIALS, correlation=0.9), NONE, NONE),
        "no goal: one arm twice as noisy": (TRIALS, {3: 2.0}, NONE),
        "no goal: one arm half as noisy again": (TRIALS, {3: 1.5}, NONE),
        "no goal: layout 1 %, but 3 % of one arm": (uneven, NONE, {3: 3.0}),
    }
    for name, (machine, loud, moved) in rows.items():
        yield name, *(covered(sweeps, *column, machine, loud, moved) for column in columns)


def coverage_of_small_plans(sweeps: int) -> Table:
    """Coverage where there is little to learn from: two arms, few rounds, layout 0.5 %."""
    yield "plan", "coverage", "with spikes"
    plans = [(1, 3, 1), (1, 6, 1), (1, 5, 2), (3, 3, 1), (3, 6, 1), (12, 3, 1), (49, 5, 2)]
    for arms, servers, each in plans:
        calm, spiky = (replace(TRIALS, process=0.005, spikes=spikes) for spikes in (0.0, SPIKES))
        count = sweeps if arms < 20 else sweeps // 5
        yield (
            f"{arms} effects, {servers} x {each}",
            covered(count, arms, servers, each, calm),
            covered(count, arms, servers, each, spiky),
        )


def coverage_of_addresses(sweeps: int) -> Table:
    """A workload whose speed depends on bits of its addresses: 1.3 % between servers, far from normal."""
    yield "servers", "40 sweeps", f"{sweeps} sweeps"
    planted = list(np.linspace(-0.1, 0.1, 6))
    for servers, name in ((5, "5 x 2"), (10, "10 x 1"), (2, "2 x 5"), (1, "one for all ten rounds")):
        times = addressed(np.random.default_rng(5), max(40, sweeps), planted, 10, servers)
        held = hits(times, planted, servers)
        yield name, share(held[:40]), share(held)


def found(sweeps: int, servers: int, each: int, machine: Machine, effect: float, arms: int = 12) -> str:
    """Share of sweeps that call one slower arm among equal ones."""
    planted = [effect] + [0.0] * (arms - 1)
    times = machine.sweep(np.random.default_rng(4), sweeps, planted, servers * each, 1, servers)
    return share(np.array([decided(t, servers).verdicts["1"].verdict is Verdict.SLOWER for t in times]))


def power(sweeps: int) -> Table:
    """How often +4 % is called among twelve arms, and what a plan promises to find in 80 %."""
    yield "+4 %, pairs scatter by 2 %", "quiet", "6 % spikes"
    for servers, each in ((5, 2), (10, 1)):
        quiet, spiky = (
            found(sweeps, servers, each, replace(PAIRS, spikes=spikes), math.log(1.04))
            for spikes in (0.0, SPIKES)
        )
        yield f"12 arms, {servers} x {each}", quiet, spiky
    for arms, servers, each, layout in [(1, 6, 1, 0.0), (6, 4, 1, 0.0), (12, 5, 2, 0.01), (50, 8, 1, 0.0)]:
        error = pair_error(servers, each, 0.02, layout)
        effect = detectable_effect(error, arms * (servers - 1), arms)
        effect += math.log1p(0.01)  # the margin that `decided` has
        planted = [effect] + [0.0] * (arms - 1)
        # All that scatters is in the spread that the plan assumes, drift within rounds too.
        machine = replace(PAIRS, drift=0.0, process=layout / math.sqrt(2))
        times = machine.sweep(np.random.default_rng(4), sweeps // 2, planted, servers * each, 1, servers)
        called = [decided(t, servers).verdicts["1"].verdict is Verdict.SLOWER for t in times]
        promise = f"{math.expm1(effect):.1%}, promised in .80 of sweeps: {arms} arms, {servers} x {each}"
        yield promise, share(np.array(called)), ""


def false_claims(sweeps: int) -> Table:
    """Sweeps of equal arms in which any is called, and in which a claimed gain of 10 % is ruled."""
    yield "equal arms", "a verdict, margin 0", "a verdict, margin 1 %", "a claim confirmed or exceeded"
    rows = [
        ("layout 1 %", replace(TRIALS, process=0.01), 6, 5, 2),
        ("layout 5 %", replace(TRIALS, process=0.05), 6, 5, 2),
        ("layout 2 %", replace(TRIALS, process=0.02), 12, 5, 2),
        ("layout 2 %", replace(TRIALS, process=0.02), 12, 2, 5),
        ("spikes", replace(PAIRS, spikes=SPIKES), 12, 10, 1),
        ("drift of 30 %", replace(TRIALS, drift=0.3), 12, 10, 1),
        ("spikes and layout 1 %", replace(PAIRS, spikes=SPIKES, process=0.01), 12, 5, 2),
    ]
    for name, machine, arms, servers, each in rows:
        times = machine.sweep(np.random.default_rng(1), sweeps, [0.0] * arms, servers * each, 1, servers)
        yield (
            f"{name}: {arms} arms, {servers} x {each}",
            *(share(np.array([any_called(t, servers, margin) for t in times])) for margin in (0.0, 0.01)),
            share(np.array([any_ruled(t, servers) for t in times])),
        )


def any_called(times: np.ndarray, servers: int, margin: float) -> bool:
    """Whether a sweep calls any of its equal arms faster or slower."""
    return any(one.verdict in CLAIMS for one in decided(times, servers, margin).verdicts.values())


def any_ruled(times: np.ndarray, servers: int) -> bool:
    """Whether a sweep of equal arms bears out a claim of a gain for any of them."""
    decisions = decided(times, servers)
    rulings = [
        rule_claim(claimed, decisions.verdicts[name], estimate.log_ratio).ruling
        for name, estimate in decisions.estimates.items()
        for claimed in (ANY_GAIN, (1.0, 1.1))
    ]
    return any(ruling in (Ruling.CONFIRMED, Ruling.EXCEEDED) for ruling in rulings)


def placebos(sweeps: int) -> Table:
    """Equal arms that are called although placebos beside them show how far equal arms lie apart."""
    yield "8 equal arms", "arms called, no placebo", "2 of them placebos", "placebos by each other's floor"
    for name, layout, servers, each in [
        ("layout 1.3 %, 5 x 2", 0.013, 5, 2),
        ("layout 5 %, 5 x 2", 0.05, 5, 2),
        ("layout 1.3 %, one server for ten rounds", 0.013, 1, 10),
        ("layout 10 %, one server for ten rounds", 0.10, 1, 10),
    ]:
        machine = replace(TRIALS, process=layout)
        times = machine.sweep(np.random.default_rng(6), sweeps, [0.0] * 8, servers * each, 1, servers)
        columns = [[called(t, servers) for t in times] for called in (_bare, _held, _left)]
        yield name, *(share(np.array(column)) for column in columns)


def _called(times: np.ndarray, servers: int, count: int, names: Sequence[str]) -> np.ndarray:
    verdicts = decided(times, servers, placebos=count).verdicts
    return np.array([verdicts[name].verdict in CLAIMS for name in names])


def _bare(times: np.ndarray, servers: int) -> np.ndarray:
    return _called(times, servers, 0, [str(i) for i in range(1, 9)])


def _held(times: np.ndarray, servers: int) -> np.ndarray:
    return _called(times, servers, 2, [str(i) for i in range(1, 7)])


def _left(times: np.ndarray, servers: int) -> np.ndarray:
    """The seventh and eighth arm, each judged as an arm by the floor of the other."""
    swapped = times[[0, 1, 2, 3, 4, 5, 6, 8, 7]]
    return np.concatenate([_called(one, servers, 1, ["7"]) for one in (times, swapped)])


MIXED = [0.0, 0.0, 0.0, 0.0, 0.01, -0.01, 0.02, -0.02, 0.05, -0.05, 0.2, -0.3]


def stopping(sweeps: int) -> Table:
    """Sweeps whose arms leave by the shipped rule: +-1 %, or clearly apart; at most 60 rounds."""
    yield (
        "+-1 %, pairs scatter by 2.1 %, tails of t5",
        "coverage",
        "least of an arm",
        "sweeps with a false claim",
        "the same, no goal: margin 0",
        "rounds of an arm",
    )
    rows = [
        ("12 effects, 0 to 30 %", MIXED, NONE),
        ("the same, an arm three times as noisy", MIXED, {5: 3.0}),
        ("12 equal arms", [0.0] * 12, NONE),
        ("the same, an arm three times as noisy", [0.0] * 12, {5: 3.0}),
        ("one effect", [0.0], NONE),
    ]
    for name, planted, loud in rows:
        held, false, rounds = stopped(max(300, sweeps // 3), planted, loud, 0.01)
        strict = stopped(max(300, sweeps // 3), planted, loud, 1e-9)[1]
        least = f"{held.mean(axis=0).min():.3f}"
        yield name, share(held), least, share(false), share(strict), f"{rounds.mean():.1f}"


def stopped(
    sweeps: int, planted: Sequence[float], loud: Mapping[int, float], margin: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which intervals [sweeps, effects] hold, which sweeps claim falsely, the rounds of each arm."""
    rng = np.random.default_rng(1)
    ends = [measured_until(generations(rng, planted, 60, loud=loud), 0.01, margin) for _ in range(sweeps)]
    held = [held_by(one.decisions, planted) for one in ends]
    false = [claims_falsely(one.decisions, planted) for one in ends]
    return np.array(held), np.array(false), np.array([one.rounds[1:] for one in ends])


def silence(_: int) -> Table:
    """Twelve equal arms on a shared host, iteration by iteration: twenty seeds, default margin."""
    yield "shared host, 12 equal arms", "silent sweeps"
    for rounds in (6, 10):
        sweeps = [SHARED.sweep(np.random.default_rng(seed), 1, [0.0] * 12, rounds)[0] for seed in range(20)]
        yield f"{rounds} rounds", f"{sum(not any_called(t, 0, 0.01) for t in sweeps)} of {len(sweeps)}"


def left_out(sweeps: int) -> Table:
    """What each part of the method is worth: the same rows without it."""
    yield "6 arms, 5 x 2", "layout 2 %", "noisy arm", "spikes", "+4 % of 12 arms, quiet", "with spikes"
    least_squares = patch.object(arm_variance, "LEAST_DEGREES", 10**9)
    nobody = patch.object(Level, "noisy", lambda self: np.zeros(len(self.squares), bool))
    parts: dict[str, tuple[contextlib.AbstractContextManager[object], int]] = {
        "as it is": (contextlib.nullcontext(), 5),
        "rounds judged instead of servers": (contextlib.nullcontext(), 10),
        "least squares instead of the bisquare": (least_squares, 5),
        "noisy arms pooled with the others": (nobody, 5),
    }
    layout, spiky = replace(TRIALS, process=0.02), replace(PAIRS, spikes=SPIKES)
    for name, (part, counted) in parts.items():
        with part:
            yield (
                name,
                _counted(sweeps, layout, counted),
                covered(sweeps, 6, 5, 2, loud={3: 3.0}),
                covered(sweeps, 6, 5, 2, spiky),
                found(sweeps, 5, 2, PAIRS, math.log(1.04)),
                found(sweeps, 5, 2, spiky, math.log(1.04)),
            )


def _counted(sweeps: int, machine: Machine, counted: int) -> str:
    """Coverage of six arms on five servers of two rounds, so many of which are told to the judge."""
    times = machine.sweep(np.random.default_rng(2), sweeps, [0.0] * 6, 10, 1, 5)
    return share(hits(times, [0.0] * 6, counted))


SECTIONS: dict[str, Callable[[int], Table]] = {
    "Coverage of 95 % intervals by layout (goal .93 to .97)": coverage_by_layout,
    "Coverage under disturbance (goal .93 to .97)": coverage_when_disturbed,
    "Coverage of small and large plans": coverage_of_small_plans,
    "Coverage of a workload whose speed depends on address bits (goal .93 to .97)": coverage_of_addresses,
    "Power (goal .90, with spikes .75)": power,
    "Sweeps of equal arms with a false claim (at most .05)": false_claims,
    "Placebos (goal at most .001 of rows)": placebos,
    "Coverage and false claims when each arm stops by itself (goal .93 to .97, at most .05)": stopping,
    "Silence": silence,
    "What each part is worth": left_out,
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
