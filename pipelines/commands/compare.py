"""`perfsweep compare`: effects, parity and rulings of what is done, and what became slower than in others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipelines import api
from pipelines.analysis import versions
from pipelines.analysis.versions import Baseline
from pipelines.commands.sweep import show_comparison
from pipelines.exits import DONE, SOME_FAILED
from pipelines.report import explanation
from pipelines.report import versions as changes
from pipelines.terminal import console_here
from workloads.errors import ConfigError


def compare(
    sweep: str,
    others: Sequence[str] = (),
    against: Sequence[str] = (),
    store: str | None = None,
    margin: float = 0.05,
    explain: str | None = None,
    columns: str | None = None,
) -> int:
    """Compare a sweep; where others are named, status 1 says that an arm became slower.

    With `explain` only that row of its effects is derived, step by step. `columns` are names, with commas
    between them, of what its tables show beside time.

    Raises
    ------
    ConfigError
        Others are named without ``--against``, a column is unknown, or there is no such row to explain.
    """
    if others and not against:
        raise ConfigError(f"{others[0]}: write --against before the sweeps to compare with")
    console, opened = console_here(), api.open_sweep(sweep, _names(columns))
    baselines = [baseline_at(path) for path in (*against, *others)]  # what is missing is said before tables
    if explain:
        explanation.show(console, opened.comparison, explain)
        return DONE
    status = show_comparison(console, opened)
    if store:
        versions.store(opened.baseline, Path(store))
        console.print(f"baseline: {store}", highlight=False)
    if not against:
        return status
    slower = changes.show(console, opened.baseline, baselines, margin)
    return max(status, SOME_FAILED if slower else DONE)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def baseline_at(path: str) -> Baseline:
    """Read a stored baseline, or what the folder of a sweep can be compared by."""
    return changes.stored_baseline(path) or api.open_sweep(path).baseline
