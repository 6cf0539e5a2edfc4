"""Profiles as tables, and as the lines and links of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from perfsweep.pipelines.report.terminal_table import plain_table
from perfsweep.pipelines.store.profiles import Cost, Kept, Profile, kept_profiles, overhead_text
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.units import MB, duration

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
            console.print(
                f"  and {len(profile.costs) - top} more, in {kept.folder / 'profile.json'}", highlight=False
            )
    else:
        console.print(f"\n{_title(profile)}", highlight=False, markup=False)
    for line in profile.findings:
        console.print(f"- {line}", highlight=False, markup=False)
    console.print(f"- {overhead_text(profile)}", highlight=False, markup=False)
    for line in profile.notes:
        console.print(f"- {line}", highlight=False, markup=False)
    names = ", ".join(file.name for file in kept.files) or "profile.json"
    console.print(f"- files: {kept.folder}/ {names}", highlight=False, markup=False)


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
    """Cut a text of the workload's to its two ends, and escape what rich takes for markup."""
    half = LONGEST_NAME // 2
    cut = text if len(text) <= LONGEST_NAME else f"{text[:half]}...{text[-half:]}"
    return cut.replace("[", r"\[")


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
