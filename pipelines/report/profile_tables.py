"""Profiles as tables, and as the lines and links of a report."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.report.terminal_table import plain_table, print_lines
from perfsweep.pipelines.store.profiles import (
    RESULT,
    Cost,
    Kept,
    Profile,
    kept_profiles,
    overhead_text,
    read_profile,
)
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.units import MB, duration, speed
from perfsweep.workloads.errors import ConfigError

NAME_WIDTH = 28
"""Characters of a name that a narrow terminal shows before anything else is cut."""

LONGEST_NAME = 60
"""Names of kernels run to hundreds of characters; `profile.json` has them whole."""

HEADINGS = {
    "pyinstrument": ("function", "where"),
    "torch": ("operator or kernel", ""),
    "memory": ("asked for by", "where"),
    "roofline": ("phase", ""),
    "dynamo": ("compiled frame", "where"),
}
"""What the lines of each tool are called."""
UNKNOWN = ("name", "where")


def show(console: Console, kept: Kept, top: int) -> None:
    """Print one profile: its table, what it found, what it costs, its files."""
    profile = kept.profile
    rows = profile.costs[:top]
    if rows:
        console.print(_table(profile, rows))
        if len(profile.costs) > top:
            console.print(f"  and {len(profile.costs) - top} more, in {kept.folder / RESULT}")
    else:
        console.print(f"\n{_title(profile)}")
    names = ", ".join(file.name for file in kept.files) or RESULT
    files = f"files: {kept.folder}/ {names}"
    print_lines(console, [*profile.findings, overhead_text(profile), *profile.notes, files])


def _title(profile: Profile) -> str:
    return f"{profile.title} of {profile.arm.label}, {profile.slice}"


def _table(profile: Profile, rows: Sequence[Cost]) -> Table:
    columns = _columns(profile, rows)
    table = named_table(_title(profile), profile.tool, [row.name for row in rows], columns)
    for row, *cells in zip(rows, *columns.values(), strict=True):
        add_named(table, profile.tool, row.name, row.where, cells)
    return table


def named_table(title: str, tool: str, names: Sequence[str], numbers: Iterable[str]) -> Table:
    """An empty table for the lines of a tool: names, places where the tool tells them, and numbers."""
    table, (first, second) = plain_table(title), HEADINGS.get(tool, UNKNOWN)
    table.add_column(first, overflow="fold", min_width=min(NAME_WIDTH, max(map(len, names), default=0)))
    if second:
        table.add_column(second, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def add_named(table: Table, tool: str, name: str, where: str, cells: Iterable[str]) -> None:
    """Add a line to such a table."""
    table.add_row(shorten(name), *([shorten(where)] if HEADINGS.get(tool, UNKNOWN)[1] else []), *cells)


def shorten(text: str) -> str:
    """Cut a text of the workload's to its two ends."""
    half = LONGEST_NAME // 2
    return text if len(text) <= LONGEST_NAME else f"{text[:half]}...{text[-half:]}"


def _columns(profile: Profile, rows: Sequence[Cost]) -> dict[str, list[str]]:
    """Headings with a cell for each row."""
    if profile.tool == "dynamo":
        return {
            "compiling": [duration(row.self_ns) for row in rows],
            "operators": [f"{row.calls:g}" for row in rows],
        }
    if profile.tool == "memory":
        return {
            "in use": [f"{(row.bytes or 0) / MB:,.2f} MB" for row in rows],
            "blocks": [f"{row.calls:g}" for row in rows],
        }
    per, total = max(profile.iterations, 1), sum(cost.total_ns for cost in profile.costs) or 1.0
    columns = {"self per iteration": [duration(row.self_ns / per) if row.self_ns else "" for row in rows]}
    if any(row.device_ns for row in profile.costs):
        columns["on device"] = [duration(row.device_ns / per) if row.device_ns else "" for row in rows]
    if profile.tool == "roofline":
        return {**columns, **_rates(profile, rows, per)}
    columns["share"] = [f"{row.total_ns / total:.0%}" for row in rows]
    if any(row.calls for row in rows):
        columns["calls"] = [f"{row.calls / per:,.6g}" for row in rows]
    return columns


def _rates(profile: Profile, rows: Sequence[Cost], per: int) -> dict[str, list[str]]:
    """FLOPs and bytes of an iteration, their ratio, and the rates they were done at against the ceiling."""
    flop_peak, byte_peak = (profile.facts.get(name) for name in ("flops_per_s", "bytes_per_s"))
    return {
        "MFLOP": [f"{(row.flops or 0) / per / 1e6:,.4g}" for row in rows],
        "MB": [f"{(row.bytes or 0) / per / 1e6:,.4g}" for row in rows],
        "FLOP/B": [f"{row.flops / row.bytes:.3g}" if row.flops and row.bytes else "" for row in rows],
        "GFLOP/s": [_rate(row.flops, row.self_ns, flop_peak) for row in rows],
        "GB/s": [_rate(row.bytes, row.self_ns, byte_peak) for row in rows],
    }


def _rate(amount: float | None, ns: float, peak: float | str | None) -> str:
    """Amount per second in billions, with its share of the peak."""
    if not amount or not ns:
        return ""
    share = f" ({amount / ns * 1e9 / peak:.0%})" if isinstance(peak, float) and peak else ""
    return f"{amount / ns:,.3g}{share}"


SHOWN = 3
"""Lines of a profile that a report names; its files have the rest."""

PROFILE_HEADINGS = ("arm", "tool and slice", "most of the time", "cost of looking", "files")
"""Over the table of profiles, whose last column is links."""


@dataclass(frozen=True)
class LinkedProfile:
    """One profile in a report. `files` are names with addresses relative to the report's."""

    arm: str
    what: str
    most: str
    cost: str
    files: tuple[tuple[str, str], ...]


def linked_profiles(folder: SweepFolder) -> list[LinkedProfile]:
    """List the profiles of a sweep, in the order of their folders."""
    return [_linked(folder, kept) for kept in kept_profiles(folder)]


def _linked(folder: SweepFolder, kept: Kept) -> LinkedProfile:
    profile = kept.profile
    files = tuple((file.name, file.relative_to(folder.path).as_posix()) for file in kept.files)
    cost = "" if profile.overhead is None else f"{profile.overhead:.2f}x"
    return LinkedProfile(
        profile.arm.label, f"{profile.title}, {profile.slice}", "; ".join(_most(kept)), cost, files
    )


def _most(kept: Kept) -> list[str]:
    """What takes most, or what was found where nothing has a time."""
    profile = kept.profile
    timed = [cost for cost in profile.costs if cost.total_ns]
    if not timed:
        return list(profile.findings[:1])
    if profile.tool == "dynamo":
        return [*profile.findings[:1], *(f"{cost.name} {duration(cost.total_ns)}" for cost in timed[:SHOWN])]
    total = sum(cost.total_ns for cost in timed)
    return [f"{cost.name} {cost.total_ns / total:.0%}" for cost in timed[:SHOWN]]


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


def show_difference(console: Console, before: Profile, after: Profile, top: int) -> None:
    """Print the largest changes, and what they add up to."""
    changes = differences(before, after)
    arms = f"A is {before.arm.label}, B is {after.arm.label}"
    title = f"{before.title}: {arms}; self time per {per(before, after)}"
    console.print(_difference_table(title, before.tool, changes, top))
    if len(changes) > top:
        rest = sum(one.change_ns for one in changes[top:])
        console.print(f"  and {len(changes) - top} more, together {signed_duration(rest)}")
    print_lines(console, [bare_times_text(before, after)])


def _difference_table(title: str, tool: str, changes: Sequence[Difference], top: int) -> Table:
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
