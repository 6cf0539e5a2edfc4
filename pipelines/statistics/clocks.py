"""Which clock a comparison believes, decided from what disturbed its trials before any ratio is formed.

Choosing after seeing what both clocks say would find effects that are not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

ENOUGH = 0.25
"""Share of crowded trials from which CPU time is the better clock; a lone one is drift, which
pairing removes."""


class Clock(StrEnum):
    """What times are read from."""

    WALL = "wall time"
    CPU = "CPU time"

    @property
    def figure(self) -> str:
        """The column of the table of trials."""
        return "ns_per_unit" if self is Clock.WALL else "cpu_ns_per_unit"


@dataclass(frozen=True)
class Conditions:
    """What a timing trial of an arm met: see `TrialRecord` for `crowded` and `alone`."""

    arm: str
    crowded: bool
    alone: bool


@dataclass(frozen=True)
class ClockChoice:
    """The clock of all effects of a sweep; `reason` is empty where nothing speaks against wall time.

    `alone`: every arm computes in one thread, so that CPU time could stand in.
    """

    clock: Clock
    reason: str = ""
    alone: bool = False


def choose_clock(trials: Sequence[Conditions]) -> ClockChoice:
    """Choose one clock for all that is compared with one another.

    CPU time where others had the cores of a good part of the trials, and no arm uses threads, processes or
    devices beside its own thread: of such work CPU time shows another part than wall time.
    """
    crowded = sum(trial.crowded for trial in trials)
    busy = sorted({trial.arm for trial in trials if not trial.alone})
    if not trials or crowded < ENOUGH * len(trials):
        return ClockChoice(Clock.WALL, alone=bool(trials) and not busy)
    reason = f"others had the cores of {crowded} of {len(trials)} timing trials for too long"
    if not busy:
        return ClockChoice(Clock.CPU, f"{reason}, and every arm computes in one thread", alone=True)
    others = len(busy) - 1
    why = (
        f"and {others} more use more than one thread, or wait"
        if others
        else "uses more than one thread, or waits"
    )
    return ClockChoice(Clock.WALL, f"{reason}; {busy[0]} {why}")
