"""Records -> one table. It has all columns that later stages need, so records are read once.

`tables/trials.parquet` has one row for each trial; `used` marks the timing trials of finished rounds, the
only ones that comparisons use. You can query it yourself::

    import polars as pl
    trials = pl.read_parquet("runs/digits-demo/tables/trials.parquet")
    trials.filter(pl.col("used")).group_by("label").agg(pl.col("ns_per_unit").median())
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from perfsweep.pipelines.analysis.columns import Column, ValueType, file_column, parquet_table
from perfsweep.pipelines.store.files import write_parquet
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, TrialRecord


@dataclass(frozen=True)
class Trial:
    """A trial with its place in the plan: the label of its arm, and whether comparisons use it."""

    record: TrialRecord
    folder: Path
    label: str
    used: bool


def _per_unit(trial: Trial, ns: int) -> float | None:
    record = trial.record
    return ns / record.units if record.kind is Kind.TIMING and record.units > 0 else None


def _recorded(name: str, kind: ValueType = str) -> Column[Trial]:
    """A field of the record as it is."""
    return file_column(name, lambda trial: getattr(trial.record, name), kind)


def _of_ranks(trial: Trial, name: str) -> float | None:
    return getattr(trial.record.ranks, name) if trial.record.ranks else None


TRIALS: tuple[Column[Trial], ...] = (
    _recorded("arm"),
    file_column("label", lambda trial: trial.label),
    file_column("kind", lambda trial: trial.record.kind.value),
    _recorded("pack"),
    _recorded("round", int),
    _recorded("attempt", int),
    _recorded("server", int),
    file_column("outcome", lambda trial: trial.record.outcome.value),
    file_column("used", lambda trial: trial.used, bool),
    file_column("reason", lambda t: t.record.failure.message.partition("\n")[0] if t.record.failure else ""),
    file_column("ns_per_unit", lambda trial: _per_unit(trial, trial.record.time_ns), float),
    file_column("wall_ns_per_unit", lambda trial: _per_unit(trial, trial.record.region_ns), float),
    file_column("cpu_ns_per_unit", lambda trial: _per_unit(trial, trial.record.region_cpu_ns), float),
    _recorded("lost_ns", int),
    _recorded("run_delay_ns", int),
    _recorded("minor_faults", int),
    _recorded("major_faults", int),
    _recorded("system_ns", int),
    _recorded("calibration_ns", int),
    _recorded("units", float),
    _recorded("iterations", int),
    file_column("region_s", lambda trial: trial.record.region_ns / 1e9, float),
    _recorded("setup_s", float),
    _recorded("first_iteration_s", float),
    _recorded("warmup_iterations", int),
    _recorded("warmup_s", float),
    _recorded("settled", bool),
    _recorded("alarm"),
    _recorded("compile_s", float),
    _recorded("recompiles", int),
    _recorded("peak_bytes", int),
    _recorded("mfu", float),
    file_column("ranks", lambda trial: len(trial.record.ranks.nodes) if trial.record.ranks else None, int),
    file_column("collectives", lambda trial: _of_ranks(trial, "collectives"), float),
    file_column("straggling", lambda trial: _of_ranks(trial, "straggling"), float),
    file_column("disturbed", lambda trial: "; ".join(trial.record.disturbed)),
    file_column("keys", lambda t: "; ".join(f"{k}={v}" for k, v in sorted(t.record.keys.items()))),
    _recorded("started", float),
    file_column("folder", lambda trial: str(trial.folder)),
)


def collect(folder: SweepFolder, manifest: Manifest, progress: Progress | None = None) -> pl.DataFrame:
    """Write `tables/trials.parquet` from a sweep's records (`progress` if read already), and return it."""
    progress = progress or read_progress(folder, manifest)
    labels = {arm.id: arm.label for arm in manifest.arms}
    used = _used_attempts(progress, manifest)
    trials = [
        Trial(
            one.record,
            one.folder,
            labels[one.record.arm],
            (one.record.pack, one.record.round, one.record.attempt) in used,
        )
        for one in progress.every
    ]
    table = parquet_table(TRIALS, trials).sort("pack", "round", "attempt", "started")
    write_parquet(folder.tables_dir / "trials.parquet", table)
    return table


def _used_attempts(progress: Progress, manifest: Manifest) -> set[tuple[str, int, int]]:
    """(pack, round, attempt) of finished rounds."""
    return {
        (pack.id, number, attempt)
        for pack in manifest.packs
        for number in range(len(pack.orders))
        if (attempt := progress.finished_attempt(pack, number)) is not None
    }
