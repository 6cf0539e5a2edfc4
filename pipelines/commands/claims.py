"""`perfsweep claims`: the ledger, a table for each report, and how many claims met which fate."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from rich.console import Console

from perfsweep.pipelines.analysis.claim_ledger import (
    Entry,
    gather_rulings,
    ledger,
    promise,
    published_rulings,
)
from perfsweep.pipelines.analysis.columns import NAME_WIDTH, Column, Where
from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.report.markdown import markdown_table
from perfsweep.pipelines.report.tables import Table
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.terminal import console_here
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads import registry
from perfsweep.workloads.api import Device

RESULTS = Path("docs") / "results"
"""Committed result pages, from the repository root."""

COLUMNS: tuple[Column[Entry], ...] = (
    Column("section", "section", text=lambda one: one.claim.section),
    Column("claim", "claim", text=lambda one: one.claim.text, width=NAME_WIDTH),
    Column("contradicts", "the report also says", text=lambda one: one.claim.contradicts, optional=True),
    Column("promise", "claimed", text=lambda one: promise(one.claim)),
    Column("ruling", "ruling", text=lambda one: one.ruling),
    Column("evidence", "evidence, or what it takes", text=lambda one: one.evidence, width=NAME_WIDTH),
)


PAGE = """# What the reports claim, and what was measured

Every claim of the reports that ship as data, in their own words, with its ruling and the sweep it rests on;
[reading.md](reading.md#claims) says how rulings come about. *Here* is where the result pages were measured:
processors without a GPU. On yours, `perfsweep claims` says what your sweeps say.

This page is the output of `perfsweep claims --markdown`, from the ledgers in
`workloads/*/claims.py` and the rulings in [results/](results).
"""
HERE = Device(compiler=True)
"""Where the committed results were measured."""


def claims(workload: str | None, runs: str, markdown: bool) -> int:
    """Print every claim of one workload's reports, or of all, with its ruling under `runs`, or as a page."""
    if markdown:
        sys.stdout.write(page(workload, RESULTS))
    else:
        devices = executor_choice.devices_in_reach(environment.device_facts())
        show(console_here(), workload, Path(runs), devices)
    return DONE


def show(console: Console, workload: str | None, runs: Path, devices: Sequence[Device]) -> None:
    """Print every claim of one workload's reports, or of all, with its ruling in the sweeps under `runs`.

    `devices` are the devices that sweeps can be measured on from here, this machine's first.

    Raises
    ------
    ConfigError
        The workload is unknown.
    """
    rulings, damaged = gather_rulings(runs)
    for table in _tables(workload, rulings, devices):
        print_table(console, table.at(Where.TERMINAL))
        console.print(table.caption)
    for message in damaged:
        console.print(f"skipped: {message}", style="yellow")


def page(workload: str | None, results: Path) -> str:
    """Write the same as a page of Markdown, ruled on by the result pages under `results`."""
    parts = [PAGE]
    for table in _tables(workload, published_rulings(results), [HERE]):
        parts += [
            f"## {table.title}\n",
            f"{table.caption}.\n",
            f"{markdown_table(table.at(Where.MARKDOWN))}\n",
        ]
    return "\n".join(parts)


def _tables(workload: str | None, rulings: pl.DataFrame, devices: Sequence[Device]) -> Iterator[Table[Entry]]:
    """One table for each report; its caption counts how many claims met which fate."""
    for name in [workload] if workload else sorted(registry.names()):
        cls = registry.declared(name)
        entries = ledger(name, cls.claims, cls.toggles, rulings, *devices)
        for source in dict.fromkeys(entry.claim.source for entry in entries):
            own = tuple(entry for entry in entries if entry.claim.source == source)
            counts = Counter(entry.ruling for entry in own).most_common()
            totals = ", ".join(f"{number} {ruling}" for ruling, number in counts)
            yield Table(f"{name}: {source}", COLUMNS, own, f"{len(own)} claims: {totals}")
