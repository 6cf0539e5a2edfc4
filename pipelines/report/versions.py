"""The command that compares a sweep with others, or with stored baselines, and says what became slower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.analysis.versions import Changes, Snapshot, against, load
from pipelines.report.wording import bounds_text, percent


def show(console: Console, now: Snapshot, then: Sequence[Snapshot], margin: float) -> bool:
    """Print one table for each of the others, the oldest first as given; whether any arm regressed."""
    regressed = False
    for other in then:
        found = against(other, now)
        _show(console, found, margin)
        regressed |= bool(found.regressions(margin))
    return regressed


def _show(console: Console, found: Changes, margin: float) -> None:
    title = f"\n{found.now.sweep} against {found.then.sweep}: time now / then"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("arm", "time", "95 % interval", f"beside {found.now.reference}", "95 % interval", ""):
        table.add_column(heading, overflow="fold")
    worse = {change.label for change in found.regressions(margin)}
    for change in found.changes:
        relative = (
            (percent(change.relative[0]), bounds_text(*change.relative)) if change.relative else ("", "")
        )
        plain = (percent(change.ratio), bounds_text(change.ratio, change.low, change.high))
        table.add_row(change.label, *plain, *relative, "[bold red]slower[/]" if change.label in worse else "")
    console.print(table)
    for line in _notes(found, margin):
        console.print(f"- {line}", highlight=False)


def _notes(found: Changes, margin: float) -> list[str]:
    lines = [f"{moved}" for moved in found.moved]
    if found.other_machine:
        lines.append("the devices differ, so only ratios to the reference are judged")
    lines.append(
        f"slower: the interval lies wholly above {margin:+.0%}; rounds of two sweeps are not interleaved, so"
        " a machine "
    )
    lines[-1] += "that drifted in between shows up as a change of all arms together"
    if found.missing:
        lines.append(f"only in one of the two: {', '.join(found.missing)}")
    return lines


def opened(path: str) -> Snapshot | None:
    """The stored baseline at `path`, None where it is the folder of a sweep."""
    return None if Path(path).is_dir() else load(Path(path))
