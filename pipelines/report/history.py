"""One arm over code versions: sweeps that were kept, or the baselines stored of them, oldest first.

Versions were measured at different times, so nothing pairs them. What a reader can trust more than the times
is the ratio to the reference, which was measured beside the arm in every round of each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.analysis.versions import Change, Snapshot, against
from pipelines.report.wording import bounds_text, percent
from pipelines.units import duration
from workloads.errors import ConfigError


@dataclass(frozen=True)
class Version:
    """An arm in one version: median time per unit in ns, and the change since the version before that has the
    arm.

    `moved` says what else differs from that version: commit, torch, device.
    """

    sweep: str
    commit: str
    rounds: int
    ns_per_unit: float
    change: Change | None
    other_machine: bool
    moved: tuple[str, ...]


def history(snapshots: Sequence[Snapshot], label: str) -> list[Version]:
    """Versions of the arm with this label, in the order given; those without the arm are left out.

    Raises
    ------
    ConfigError
        No version has the arm, or two that follow one another did other work; the message says what differs.
    """
    having = [one for one in snapshots if label in one.rounds]
    if not having:
        known = sorted({name for one in snapshots for name in one.rounds})
        raise ConfigError(f"--arm {label} is in none of these sweeps; choose from: {', '.join(known)}")
    found = []
    for before, now in zip([None, *having], having, strict=False):
        changes = against(before, now) if before else None
        change = next(one for one in changes.changes if one.label == label) if changes else None
        times = list(now.rounds[label].values())
        other = changes.other_machine if changes else False
        found.append(
            Version(
                now.sweep,
                now.commit,
                len(times),
                median(times),
                change,
                other,
                changes.moved if changes else (),
            )
        )
    return found


def show(console: Console, snapshots: Sequence[Snapshot], arms: Sequence[str], margin: float) -> None:
    """Print one table for each arm; without `arms` for all that the newest version has."""
    newest = snapshots[-1]
    for label in arms or newest.rounds:
        console.print(_table(history(snapshots, label), label, newest, margin))
    console.print(
        f"- slower and faster: the interval lies wholly beyond {margin:.0%} of the version before; on another"
        f" device only the ratio to {newest.reference} is judged\n- versions are not interleaved: a machine"
        " that drifted moves all arms at once",
        highlight=False,
    )


def _table(versions: Sequence[Version], label: str, newest: Snapshot, margin: float) -> Table:
    table = Table(
        title=f"\n{label}: time per {newest.unit}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading in (
        "sweep",
        "commit",
        "rounds",
        "time",
        "change",
        "95 % interval",
        f"beside {newest.reference}",
        "",
    ):
        table.add_column(
            heading, overflow="fold", justify="right" if heading in ("rounds", "time", "change") else "left"
        )
    for one in versions:
        table.add_row(*_cells(one, margin))
    return table


def _cells(one: Version, margin: float) -> tuple[str, ...]:
    first = (one.sweep, one.commit[:10], str(one.rounds), duration(one.ns_per_unit))
    change = one.change
    if change is None:
        return (*first, "", "", "", "first")
    beside = f"{percent(change.relative[0])} ({bounds_text(*change.relative)})" if change.relative else ""
    moved = "; ".join(text for text in one.moved if not text.startswith("commit"))
    words = ", ".join(word for word in (word_of(change, margin, relative=one.other_machine), moved) if word)
    return (*first, percent(change.ratio), bounds_text(change.ratio, change.low, change.high), beside, words)


def word_of(change: Change, margin: float, *, relative: bool) -> str:
    """slower or faster where the interval says so, else nothing."""
    _, low, high = (
        (change.relative or (1.0, None, None)) if relative else (change.ratio, change.low, change.high)
    )
    if low is None or high is None:
        return ""
    return "slower" if low > 1 + margin else "faster" if high < 1 / (1 + margin) else ""
