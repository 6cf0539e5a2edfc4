"""One arm over code versions: sweeps that were kept, or the baselines stored of them, oldest first.

Versions were measured at different times, so nothing pairs them. What a reader can trust more than the times
is the ratio to the reference, which was measured beside the arm in every round of each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console

from pipelines.analysis.columns import NAME_WIDTH, Column
from pipelines.analysis.versions import Baseline, Change, compare_baselines
from pipelines.report.tables import Table
from pipelines.report.terminal import print_lines, print_table
from pipelines.units import bounds_text, duration, percent
from workloads.errors import ConfigError

SLOWER = "slower"


@dataclass(frozen=True)
class Version:
    """An arm in one version: median time per unit in ns, and the change since the last version that has it.

    `moved` says what else differs from that version: commit, torch, device.
    """

    sweep: str
    commit: str
    rounds: int
    ns_per_unit: float
    change: Change | None
    other_machine: bool
    moved: tuple[str, ...]


def history(baselines: Sequence[Baseline], label: str) -> list[Version]:
    """List the versions of the arm with this label, in the order given; those without the arm are left out.

    Raises
    ------
    ConfigError
        No version has the arm, or two that follow one another did other work; the message says what differs.
    """
    having = [one for one in baselines if label in one.rounds]
    if not having:
        known = sorted({name for one in baselines for name in one.rounds})
        raise ConfigError(f"--arm {label} is in none of these sweeps; choose from: {', '.join(known)}")
    return [_version(before, now, label) for before, now in zip([None, *having], having, strict=False)]


def _version(before: Baseline | None, now: Baseline, label: str) -> Version:
    changes = compare_baselines(before, now) if before else None
    times = list(now.rounds[label].values())
    return Version(
        sweep=now.sweep,
        commit=now.commit,
        rounds=len(times),
        ns_per_unit=median(times),
        change=next(one for one in changes.changes if one.label == label) if changes else None,
        other_machine=changes.other_machine if changes else False,
        moved=changes.moved if changes else (),
    )


def show(console: Console, baselines: Sequence[Baseline], arms: Sequence[str], margin: float) -> bool:
    """Print one table for each arm, without `arms` for all of the newest; whether any became slower."""
    newest = baselines[-1]
    columns = _columns(newest, margin)
    slower = False
    for label in arms or newest.rounds:
        versions = tuple(history(baselines, label))
        print_table(console, Table(f"{label}: time per {newest.unit}", columns, versions))
        slower |= any(_direction(one, margin) == SLOWER for one in versions)
    lines = (
        f"slower and faster: the interval lies wholly beyond {margin:.0%} of the version before; on another"
        f" device only the ratio to {newest.reference} is judged",
        "versions are not interleaved: a machine that drifted moves all arms at once",
    )
    print_lines(console, lines)
    return slower


def _columns(newest: Baseline, margin: float) -> tuple[Column[Version], ...]:
    return (
        Column("sweep", "sweep", text=lambda one: one.sweep, width=NAME_WIDTH),
        Column("commit", "commit", text=lambda one: one.commit[:10]),
        Column("rounds", "rounds", text=lambda one: str(one.rounds), kind=int, drop=1),
        Column("time", "time", text=lambda one: duration(one.ns_per_unit), kind=float),
        Column("change", "change", text=lambda one: percent(one.change and one.change.ratio), kind=float),
        Column("bounds", "95 % interval", text=_bounds, kind=float),
        Column("beside", f"beside {newest.reference}", text=_beside, kind=float, drop=2),
        Column("words", "", text=lambda one: _words(one, margin), width=NAME_WIDTH),
    )


def _bounds(one: Version) -> str:
    return bounds_text(one.change.ratio, one.change.low, one.change.high) if one.change else ""


def _beside(one: Version) -> str:
    relative = one.change and one.change.relative
    return f"{percent(relative[0])} ({bounds_text(*relative)})" if relative else ""


def _words(one: Version, margin: float) -> str:
    """What became of the arm, and what moved along."""
    if one.change is None:
        return "first"
    moved = "; ".join(text for text in one.moved if not text.startswith("commit"))
    return ", ".join(text for text in (_direction(one, margin), moved) if text)


def _direction(one: Version, margin: float) -> str:
    """What became of an arm since the version before."""
    return direction(one.change, margin, relative=one.other_machine) if one.change else ""


def direction(change: Change, margin: float, *, relative: bool) -> str:
    """slower or faster where the interval says so, else nothing."""
    _, low, high = (
        (change.relative or (1.0, None, None)) if relative else (change.ratio, change.low, change.high)
    )
    if low is None or high is None:
        return ""
    return SLOWER if low > 1 + margin else "faster" if high < 1 / (1 + margin) else ""
