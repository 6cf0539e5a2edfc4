"""How often intervals of tails, stalls and times to quality hold the truth, simulated, as Markdown.

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
from dataclasses import replace

import numpy as np
from simulated_quantities import (
    BASE,
    PERCENTILES,
    StepTimes,
    Trainings,
    Waiting,
    held_share,
    held_tails,
    held_time,
)

from perfsweep.pipelines.statistics.paired_steps import LEAST_STEPS

Table = Iterator[Sequence[str]]


def share(values: Sequence[bool]) -> str:
    """A share with two standard errors of its simulation."""
    found = np.asarray(values, float)
    return f"{found.mean():.3f} ({2 * found.std() / math.sqrt(len(found)):.3f})" if len(found) else ""


def tails(sweeps: int) -> Table:
    """Coverage of p50, p95 and p99 where arms differ in their tails, and where neighbours are alike."""
    yield "steps of base and arms", *(f"p{at:g}" for at in PERCENTILES)
    none, rare = replace(BASE, slow=0.0), replace(BASE, slow=0.0005)
    more, wider = replace(BASE, slow=0.2, level=-0.2), replace(BASE, noise=0.08)
    mixed = [BASE, rare, more, wider]
    rows: dict[str, tuple[Sequence[StepTimes], int, int, int]] = {
        "no slow steps": ([none] * 4, 10, 5, LEAST_STEPS),
        "a tenth slow": ([BASE] * 4, 10, 5, LEAST_STEPS),
        "a tenth, against one in 2,000, a fifth, and wider": (mixed, 10, 5, LEAST_STEPS),
        "the same, ten servers": (mixed, 10, 10, LEAST_STEPS),
        "the same, 1,000 steps": (mixed, 10, 5, 1000),
        "neighbours alike by 0.9": ([replace(none, correlation=0.9)] * 4, 10, 5, LEAST_STEPS),
        "one arm alone": ([BASE, more], 10, 5, LEAST_STEPS),
        "no goal: 2 % slow, p99 at the edge of them": ([replace(BASE, slow=0.02)] * 4, 10, 5, LEAST_STEPS),
        "no goal: 1 % slow": ([replace(BASE, slow=0.01)] * 4, 10, 5, LEAST_STEPS),
    }
    for name, (arms, rounds, servers, steps) in rows.items():
        rng = np.random.default_rng(11)
        found = [held_tails(rng, arms, rounds, servers, steps) for _ in range(sweeps)]
        yield name, *(share([np.mean(one[place]) for one in found]) for place in range(len(PERCENTILES)))


def stalls(sweeps: int) -> Table:
    """Coverage of the stall of one arm, by rounds and servers and by what shares do from round to round."""
    yield "shares of a fifth", "6 rounds, six servers", "10 rounds, five servers", "10 rounds, ten servers"
    rows = {
        "3 % between rounds, 1 % between servers": Waiting(),
        "15 % between rounds": Waiting(noise=0.15),
        "3 % between servers too": Waiting(server=0.03),
        "one round in ten waits half as long again": Waiting(spikes=0.1),
    }
    for name, one in rows.items():
        rng = np.random.default_rng(13)
        layouts = ((6, 6), (10, 5), (10, 10))
        yield name, *(share([held_share(rng, one, *layout) for _ in range(sweeps)]) for layout in layouts)


def quality(sweeps: int) -> Table:
    """Coverage of time to quality by seeds and by the share of runs that miss the target."""
    yield "trainings", "coverage", "sweeps with a ratio", "were missed runs dropped"
    rows = {
        f"{seeds} seeds, {missed:.0%} of the slower arm's runs miss the target": Trainings(seeds, missed)
        for seeds in (5, 10, 20)
        for missed in (0.0, 0.05, 0.1, 0.15)
    }
    ten = Trainings(10, 0.1)
    alike = Trainings(10, 0.0, log_ratio=0.01, own=(0.005, 0.005))
    rows |= {
        "10 seeds, 10 %: equal arms": replace(ten, log_ratio=0.0),
        "10 seeds, 10 %: an arm of a third more steps": replace(ten, log_ratio=0.3),
        "10 seeds, 10 %: an arm of fewer steps": replace(ten, log_ratio=-0.3),
        "10 seeds, 10 %: seeds share nearly all": replace(ten, shared=0.3, own=(0.05, 0.05)),
        "10 seeds, 10 %: seeds share little": replace(ten, shared=0.05, own=(0.2, 0.2)),
        "10 seeds, 10 %: the arm scatters twice as much": replace(ten, own=(0.2, 0.1)),
        "10 seeds, 10 %: looks 3 % of the steps apart": replace(ten, every=0.03),
        "no goal: 10 seeds, pairs alike to 0.5 %, such looks": replace(alike, every=0.03),
        "no goal: the same, all seeds alike too": replace(alike, every=0.03, shared=0.005),
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
    "Coverage of the stall of an arm (goal .93 to .97)": stalls,
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
