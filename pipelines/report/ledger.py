"""The command that prints the ledger: a table for each report, and how many claims met which fate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console

from pipelines.analysis.claim_ledger import Entry, gather_rulings, ledger, promise
from pipelines.analysis.columns import NAME_WIDTH, Column
from pipelines.report.tables import Table
from pipelines.report.terminal import print_table
from pipelines.trial import environment
from workloads import registry

COLUMNS: tuple[Column[Entry], ...] = (
    Column("section", "section", text=lambda one: one.claim.section),
    Column("claim", "claim", text=lambda one: one.claim.text, width=NAME_WIDTH),
    Column("promise", "claimed", text=lambda one: promise(one.claim)),
    Column("ruling", "ruling", text=lambda one: one.ruling),
    Column("evidence", "evidence, or what it takes", text=lambda one: one.evidence, width=NAME_WIDTH),
)


def show(console: Console, workload: str | None, runs: Path) -> None:
    """Print every claim of one workload's reports, or of all, with its ruling in the sweeps under `runs`.

    Raises
    ------
    ConfigError
        The workload is unknown.
    """
    device = environment.device_facts()
    rulings, damaged = gather_rulings(runs)
    for name in [workload] if workload else sorted(registry.names()):
        cls = registry.find(name)
        entries = ledger(name, cls.claims, cls.toggles, rulings, device)
        for source in dict.fromkeys(entry.claim.source for entry in entries):
            own = tuple(entry for entry in entries if entry.claim.source == source)
            print_table(console, Table(f"{name}: {source}", COLUMNS, own))
            counts = Counter(entry.ruling for entry in own).most_common()
            totals = ", ".join(f"{number} {ruling}" for ruling, number in counts)
            console.print(f"{len(own)} claims: {totals}", highlight=False)
    for message in damaged:
        console.print(f"skipped: {message}", style="yellow", highlight=False)
