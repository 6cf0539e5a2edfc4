"""Faults by name: what each does to the world, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from storm.world import World


class NoTarget(Exception):
    """There is nothing that this fault could strike now."""


Strike = Callable[[World, Random], Iterator[str]]
"""Strikes, yields what it has struck, and mends that when it is resumed."""


@dataclass(frozen=True)
class Fault:
    """A fault; `seconds` are the shortest and longest time that it lasts, zero where it is over at once."""

    name: str
    doc: str
    strike: Strike
    seconds: tuple[float, float] = (0.0, 0.0)
    slurm: bool = False
    weight: int = 2

    @contextmanager
    def shown(self, world: World, rng: Random) -> Iterator[str]:
        """Strike, and mend it at the end of the block, whatever ends that.

        Raises
        ------
        NoTarget
            There is nothing to strike.
        """
        struck = self.strike(world, rng)
        try:
            yield next(struck)
        finally:
            for _ in struck:
                raise AssertionError(f"{self.name} strikes twice")


FAULTS: dict[str, Fault] = {}
"""Every fault that a storm may bring, by name."""


def fault(
    doc: str, seconds: tuple[float, float] = (0.0, 0.0), *, slurm: bool = False, weight: int = 2
) -> Callable[[Strike], Strike]:
    """Register a strike under the name of its function."""

    def register(strike: Strike) -> Strike:
        name = strike.__name__
        FAULTS[name] = Fault(name, doc, strike, seconds, slurm, weight)
        return strike

    return register
