"""Where the time went between two arms: each operator, function or phase in one profile against the other."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.report.profile_tables import add_named, named_table
from perfsweep.pipelines.store.profiles import RESULT, Cost, Kept, Profile, read_profile
from perfsweep.pipelines.units import duration, speed
from perfsweep.workloads.errors import ConfigError

COMPARED = ("torch", "pyinstrument", "roofline")
"""Tools whose lines are times; memory and compiled frames are read one by one."""


@dataclass(frozen=True)
class Difference:
    """One name in two profiles, in ns per unit; 0 where a profile does not have it."""

    name: str
    where: str
    before_ns: float
    after_ns: float

    @property
    def change_ns(self) -> float:
        """What the second has more."""
        return self.after_ns - self.before_ns


def profiles_at(path: str) -> list[Kept]:
    """Read the profiles in a folder: one, or all those of an arm.

    Raises
    ------
    ConfigError
        There are none.
    """
    folder = Path(path)
    files = [folder / RESULT] if (folder / RESULT).exists() else sorted(folder.glob(f"*/{RESULT}"))
    if not files:
        raise ConfigError(
            f"{path} is no folder of a profile: it has no {RESULT}; profiles lie under runs/SWEEP/profiles/"
        )
    return [read_profile(file.parent) for file in files]


def pairs(before: Sequence[Kept], after: Sequence[Kept], tool: str | None) -> list[tuple[Profile, Profile]]:
    """Pair profiles of the same tool under the same circumstances.

    Raises
    ------
    ConfigError
        There are none, or they are of different workloads.
    """
    tools = (tool,) if tool else COMPARED
    others = {(kept.profile.tool, kept.profile.variant): kept.profile for kept in after}
    pairs = [
        (one.profile, others.get((one.profile.tool, one.profile.variant)))
        for one in before
        if one.profile.tool in tools
    ]
    same = [(one, other) for one, other in pairs if other is not None]
    if not same:
        have = [
            ", ".join(dict.fromkeys(kept.profile.tool for kept in side)) or "none" for side in (before, after)
        ]
        raise ConfigError(
            f"--diff: there is no {tool or 'profile'} of the same tool on both sides (here {have[0]}; there"
            f" {have[1]}); profile both arms with profile.tool={tool or 'torch'}"
        )
    for one, other in same:
        if one.workload != other.workload:
            raise ConfigError(
                f"--diff: one profile is of {one.workload}, the other of {other.workload}: they share no"
                " operators"
            )
    return same


def differences(before: Profile, after: Profile) -> list[Difference]:
    """Compare all names of both profiles, largest change first; per unit where both did some, or iteration.

    A function is the same in both profiles when its name and file are: lines move.
    """
    amounts = _amounts(before, after)
    sides = [
        _by_name(profile.costs, amount) for profile, amount in zip((before, after), amounts, strict=True)
    ]
    changes = [
        Difference(*key, sides[0].get(key, 0.0), sides[1].get(key, 0.0)) for key in {**sides[0], **sides[1]}
    ]
    return sorted(changes, key=lambda one: abs(one.change_ns), reverse=True)


def per(before: Profile, after: Profile) -> str:
    """What times are divided by."""
    return before.unit if before.units > 0 and after.units > 0 else "iteration"


def _amounts(before: Profile, after: Profile) -> tuple[float, float]:
    if per(before, after) == "iteration":
        return float(max(before.iterations, 1)), float(max(after.iterations, 1))
    return before.units, after.units


def _by_name(costs: Sequence[Cost], amount: float) -> dict[tuple[str, str], float]:
    times: dict[tuple[str, str], float] = {}
    for cost in costs:
        key = (cost.name, cost.where.rpartition(":")[0])
        times[key] = times.get(key, 0.0) + cost.total_ns / amount
    return times


def show(console: Console, before: Profile, after: Profile, top: int) -> None:
    """Print the largest changes, and what they add up to."""
    changes = differences(before, after)
    arms = f"A is {before.arm.label}, B is {after.arm.label}"
    title = f"{before.title}: {arms}; self time per {per(before, after)}"
    console.print(_table(title, before.tool, changes, top))
    if len(changes) > top:
        rest = sum(one.change_ns for one in changes[top:])
        console.print(f"  and {len(changes) - top} more, together {signed_duration(rest)}", highlight=False)
    console.print(f"- {bare_times_text(before, after)}", highlight=False, markup=False)


def _table(title: str, tool: str, changes: Sequence[Difference], top: int) -> Table:
    table = named_table(title, tool, [one.name for one in changes], ("A", "B", "B - A"))
    everything = Difference(
        "everything", "", sum(one.before_ns for one in changes), sum(one.after_ns for one in changes)
    )
    for one in (*changes[:top], everything):
        if one is everything:
            table.add_section()
        times = (duration(ns) if ns else "" for ns in (one.before_ns, one.after_ns))
        add_named(table, tool, one.name, one.where, (*times, signed_duration(one.change_ns)))
    return table


def signed_duration(ns: float) -> str:
    """A difference of times."""
    return f"{'-' if ns < 0 else '+'}{duration(abs(ns))}" if ns else "0"


def bare_times_text(before: Profile, after: Profile) -> str:
    """Compare the two arms without the profiler: a profile shifts time towards what is called often."""
    if not before.bare_ns or not after.bare_ns:
        return "without the profiler neither is known"
    a, b = statistics.median(before.bare_ns), statistics.median(after.bare_ns)
    costs = " and ".join("?" if one.overhead is None else f"{one.overhead:.2f}x" for one in (before, after))
    return (
        f"without the profiler an iteration takes {duration(a)} in A and {duration(b)} in B"
        f" ({speed(b / a)}); with it {costs} of that"
    )
