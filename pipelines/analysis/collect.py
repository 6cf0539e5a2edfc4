"""Records -> one table. What a later question needs is a column here, so that nobody reads records again.

`tables/trials.parquet` has one row for each trial; `used` marks the timing trials of finished rounds, the
only ones that comparisons use. Ask your own questions of it::

    import polars as pl
    trials = pl.read_parquet("runs/digits-demo/tables/trials.parquet")
    trials.filter(pl.col("used")).group_by("label").agg(pl.col("ns_per_unit").median())
"""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines.store.files import write_parquet
from pipelines.store.progress import Found, Progress, read_progress
from pipelines.store.records import Kind, Manifest, SweepFolder, TrialRecord

SCHEMA = {
    "arm": pl.String,
    "label": pl.String,
    "kind": pl.String,
    "pack": pl.String,
    "round": pl.Int64,
    "attempt": pl.Int64,
    "generation": pl.Int64,
    "outcome": pl.String,
    "used": pl.Boolean,
    "reason": pl.String,
    "ns_per_unit": pl.Float64,
    "cpu_ns_per_unit": pl.Float64,
    "units": pl.Float64,
    "iterations": pl.Int64,
    "region_s": pl.Float64,
    "setup_s": pl.Float64,
    "first_iteration_s": pl.Float64,
    "warmup_iterations": pl.Int64,
    "warmup_s": pl.Float64,
    "settled": pl.Boolean,
    "alarm": pl.String,
    "compile_s": pl.Float64,
    "recompiles": pl.Int64,
    "peak_bytes": pl.Int64,
    "mfu": pl.Float64,
    "disturbed": pl.String,
    "keys": pl.String,
    "started": pl.Float64,
    "folder": pl.String,
}


def collect(folder: SweepFolder, manifest: Manifest, progress: Progress | None = None) -> pl.DataFrame:
    """Write `tables/trials.parquet` from all records of a sweep, and return it; `progress` where they are
    read already."""
    progress = progress or read_progress(folder, manifest)
    labels = {arm.id: arm.label for arm in manifest.arms}
    used = _used_attempts(progress, manifest)
    rows = [_row(trial, labels, used) for trial in _all_trials(progress)]
    table = pl.DataFrame(rows, schema=SCHEMA).sort("pack", "round", "attempt", "started")
    write_parquet(folder.tables_dir / "trials.parquet", table)
    return table


def _all_trials(progress: Progress) -> list[Found]:
    timings = [
        trial
        for attempts in progress.timing.values()
        for arms in attempts.values()
        for trial in arms.values()
    ]
    return [*timings, *progress.other.values(), *progress.seeds.values()]


def _used_attempts(progress: Progress, manifest: Manifest) -> set[tuple[str, int, int]]:
    """(pack, round, attempt) of finished rounds."""
    used = set()
    for pack in manifest.packs:
        for number in range(len(pack.orders)):
            attempt = progress.finished_attempt(pack.id, number, pack.arms)
            if attempt is not None:
                used.add((pack.id, number, attempt))
    return used


def _row(trial: Found, labels: dict[str, str], used: set[tuple[str, int, int]]) -> dict[str, Any]:
    record = trial.record
    per_unit = 1 / record.units if record.kind is Kind.TIMING and record.units > 0 else None
    return {
        "arm": record.arm,
        "label": labels[record.arm],
        "kind": record.kind.value,
        "pack": record.pack,
        "round": record.round,
        "attempt": record.attempt,
        "generation": record.generation,
        "outcome": record.outcome.value,
        "used": record.round is not None and (record.pack, record.round, record.attempt) in used,
        "reason": _reason(record),
        "ns_per_unit": record.region_ns * per_unit if per_unit else None,
        "cpu_ns_per_unit": record.region_cpu_ns * per_unit if per_unit else None,
        "units": record.units,
        "iterations": record.iterations,
        "region_s": record.region_ns / 1e9,
        "setup_s": record.setup_s,
        "first_iteration_s": record.first_iteration_s,
        "warmup_iterations": record.warmup_iterations,
        "warmup_s": record.warmup_s,
        "settled": record.settled,
        "alarm": record.alarm,
        "compile_s": record.compile_s,
        "recompiles": record.recompiles,
        "peak_bytes": record.peak_bytes,
        "mfu": record.mfu,
        "disturbed": "; ".join(record.disturbed),
        "keys": "; ".join(f"{name}={value}" for name, value in sorted(record.keys.items())),
        "started": record.started,
        "folder": str(trial.folder),
    }


def _reason(record: TrialRecord) -> str:
    return record.failure.message.partition("\n")[0] if record.failure else ""
