"""The command that prints the ledger: a table for each report, and how many claims met which fate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.analysis.claim_ledger import Entry, claimed, gathered, ledger
from pipelines.trial import environment
from workloads import registry


def show(console: Console, workload: str | None, runs: Path) -> None:
    """Every claim of one workload's reports, or of all, with its ruling in the sweeps under `runs`.

    Raises
    ------
    ConfigError
        The workload is unknown.
    """
    device = environment.device_facts()
    rulings, damaged = gathered(runs)
    for name in [workload] if workload else sorted(registry.names()):
        cls = registry.find(name)
        entries = ledger(name, cls.claims, cls.toggles, rulings, device)
        for source in dict.fromkeys(entry.claim.source for entry in entries):
            _show(console, f"{name}: {source}", [entry for entry in entries if entry.claim.source == source])
    for message in damaged:
        console.print(f"skipped: {message}", style="yellow", highlight=False)


def _show(console: Console, title: str, entries: list[Entry]) -> None:
    table = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("section", "claim", "claimed", "ruling", "evidence, or what it takes"):
        table.add_column(heading, overflow="fold")
    for entry in entries:
        table.add_row(
            entry.claim.section, entry.claim.text, claimed(entry.claim), entry.ruling, entry.evidence
        )
    console.print(table)
    counts = Counter(entry.ruling for entry in entries).most_common()
    console.print(
        f"{len(entries)} claims: {', '.join(f'{number} {ruling}' for ruling, number in counts)}",
        highlight=False,
    )
