"""`perfsweep run`: one trial of one arm, here and now."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import units
from perfsweep.pipelines.config import validation
from perfsweep.pipelines.config.types import RunCommand, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.report.tables import Table, table_of
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.store import needed_once, provenance, writers
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, TrialRecord, read_iterations
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.pipelines.terminal import console_here
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.timing.iterations import UNITS


def run(cfg: DictConfig) -> int:
    """Measure one arm once in a process of its own, and print its phases."""
    command: RunCommand = validation.typed(cfg, RunCommand)
    console = console_here()
    manifest = plan.single_arm(SweepCommand(**vars(command)), environment.device_facts())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    stage = progress_display.Stage(folder, manifest.arms[0])
    with writers.locked(folder):
        needed_once.make_folders(manifest, manifest.arms)
        launch.prepare(folder, manifest, provenance.sweep_yaml(cfg))
        with console.status(stage) if console.is_terminal else nullcontext():
            pack = PackRun(folder, manifest, manifest.packs[0])
            trials = [pack.single()]
            if manifest.sweep.keep and not trials[0].record.failure:
                trials.append(pack.again(manifest.arms[0], Kind.RESULT))
    return max(_show_trial(console, manifest, trial) for trial in trials)


def _show_trial(console: Console, manifest: Manifest, trial: StoredTrial) -> int:
    record = trial.record
    label = manifest.arms[0].label
    if record.failure:
        what = record.failure.text if record.failure.where else record.failure.message
        console.print(f"{label}: {record.outcome.value}: {what}", style="red")
        if record.failure.where:
            console.print(record.failure.where, markup=False, soft_wrap=True)
        console.print(f"log: {trial.folder / 'log.txt'}", soft_wrap=True)
        return SOME_FAILED
    if record.kind is Kind.RESULT:
        console.print(_kept_line(manifest, record), soft_wrap=True)
        return DONE
    print_table(console, _parts(f"{manifest.sweep.workload}: {label}", read_iterations(trial.folder)))
    for line in _trial_lines(record, trial.folder, manifest.sweep.declared.shape):
        console.print(line, soft_wrap=True)
    return DONE


def _kept_line(manifest: Manifest, record: TrialRecord) -> str:
    """Say where results lie, and the figures of them that the workload knows."""
    assert manifest.sweep.keep
    numbers = [f"{name} {value:.6g}" for name, value in record.numbers.items() if name != UNITS]
    told = "".join(f", {number}" for number in numbers)
    return f"kept in {manifest.sweep.keep.folder}: {record.units:g} {manifest.sweep.declared.unit}s{told}"


def _parts(title: str, arrays: dict[str, np.ndarray]) -> Table[tuple[str, ...]]:
    """How often each part of an iteration ran, how long it took, and its share of the time."""
    headings = ("part", "in iterations", "median", "95th percentile", "share of time")
    total, rows = float(arrays["wall_ns"].sum()), []
    for name, values in [("iteration", iteration_times(arrays)), *_phases(arrays)]:
        ran = values[values > 0]  # periodic parts, such as evaluation, run in few iterations
        times = [units.duration(float(np.percentile(ran, q))) for q in (50, 95)] if len(ran) else ["", ""]
        rows.append((name, f"{len(ran)} of {len(values)}", *times, f"{values.sum() / total:.0%}"))
    return table_of(title, headings, rows, numbers=headings[1:])


def _phases(arrays: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    names = [name.removeprefix("host_") for name in arrays if name.startswith("host_")]
    return [(f"  {name}", phase_times(arrays, name)[1]) for name in names]


def _trial_lines(record: TrialRecord, folder: Path, shape: str) -> list[str]:
    warm = f"warm-up {record.warmup_iterations} iterations in {record.warmup_s:.2f} s"
    if shape == "job":
        warm = f"a first job was discarded after {record.warmup_s:.2f} s"
    lines = [
        (
            f"{units.duration(record.ns_per_unit)} per unit: {record.iterations} iterations, {record.units:g}"
            " units"
        ),
        f"set-up {record.setup_s:.2f} s, {warm}",
        f"compiling {record.compile_s:.1f} s, peak memory {record.peak_bytes / units.MB:.0f} MB",
    ]
    if record.mfu is not None:
        lines.append(f"model FLOPs: {record.mfu:.2%} of the device's peak")
    if not record.settled:
        lines.append(f"not settled: {record.alarm or 'warm-up reached measure.warmup_max'}")
    if record.run_delay_ns is not None:
        lines.append(f"others had its cores for {record.run_delay_ns / record.region_ns:.1%} of the time")
    lines += [f"disturbed: {reason}" for reason in record.disturbed]
    return [*lines, f"records: {folder}"]
