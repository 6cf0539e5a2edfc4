"""What a storm brings, drawn from its seed: the same seed brings the same faults in the same order.

When a fault falls is given in seconds, and whom it strikes as a draw from whoever is there: machines differ,
so a replay brings the same storm to other moments of the sweep. Each fault has a generator of its own, so
that what one of them draws moves none of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from storm.fault import Fault

SHORTEST_S, LONGEST_S = 0.3, 5.0
"""Time between two faults: 200 of them fit into 20 minutes, those that find nobody to strike included."""


@dataclass(frozen=True)
class Planned:
    """One fault of a storm: when it falls after the one before, how long it lasts, and its own seed."""

    number: int
    fault: Fault
    after_s: float
    lasts_s: float
    seed: str

    def rng(self) -> Random:
        """What it draws from."""
        return Random(f"{self.seed}/struck")  # what chose it must not choose its victim too


def planned(seed: int, faults: Sequence[Fault]) -> Iterator[Planned]:
    """Draw faults without end."""
    weights = [one.weight for one in faults]
    number = 0
    while True:
        own = f"{seed}/{number}"
        rng = Random(own)
        (chosen,) = rng.choices(faults, weights)
        yield Planned(number, chosen, rng.uniform(SHORTEST_S, LONGEST_S), rng.uniform(*chosen.seconds), own)
        number += 1


@dataclass(frozen=True)
class Variant:
    """How a sweep of the storm measures; `slurm` tells what only a storm on Slurm can."""

    name: str
    overrides: tuple[str, ...]
    weight: int
    slurm: bool = False


TWO_LEVELS = ("axes.slab=[2,3]", "axes.work=[single]", "measure.servers=2")

VARIANTS = (
    Variant("usual", TWO_LEVELS, 4),
    Variant("long", (*TWO_LEVELS, "measure.turn_s=0.05", "measure.region_s=0.3"), 2),
    Variant("repeats", ("axes.slab=[2]", "axes.work=[single]", "measure.servers=2", "measure.repeats=2"), 2),
    Variant("exec", ("axes.variable=[on]", "measure.servers=1", "measure.rounds=3"), 1),
    Variant("shared", (*TWO_LEVELS, "cluster.packs_per_job=2"), 3, slurm=True),
)


def variant(seed: int, number: int, slurm: bool = False) -> Variant:
    """Draw how the n-th sweep of a storm measures: mostly as sweeps do by default."""
    rng = Random(f"{seed}/sweep/{number}")
    known = [one for one in VARIANTS if slurm or not one.slurm]
    return rng.choices(known, [one.weight for one in known])[0]
