"""`perfsweep run`: one trial of one arm here and now, or a script to its end with levels, its parity checked.

The second is ``perfsweep run train.py --with tuned.yaml``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import units
from perfsweep.pipelines.commands import script_looking
from perfsweep.pipelines.config import composition, external_workload, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import RunCommand, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import Exec, fix_imports, wait
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict, loosest
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report import progress_display
from perfsweep.pipelines.report.tables import Table, table_of
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.store import needed_once, provenance, writers
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import (
    Kind,
    Manifest,
    SweepFolder,
    TrialRecord,
    read_evidence,
    read_iterations,
    read_record,
    write_spec,
)
from perfsweep.pipelines.store.trial_files import iteration_times, phase_times
from perfsweep.pipelines.terminal import console_here, error_console
from perfsweep.pipelines.trial import layout
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.timing.iterations import UNITS
from perfsweep.workloads import native
from perfsweep.workloads.api import Declaration, Evidence, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import sources


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


CHECKED = "measure.evidence_iterations=12"
"""Iterations whose results are compared before the script is run for good, unless others are typed."""

SAME = (ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE)
"""Verdicts of results after which the script is run."""


def run_script(line: PastedLine, overrides: Sequence[str], levels_file: str | None) -> int:
    """Check that levels leave the results of a script as they are, and then become that script with them.

    Messages go to stderr; both streams of the script and its exit status are its own.

    Parameters
    ----------
    overrides : options of `perfsweep run`, such as toggles
    levels_file : YAML with a level for each toggle

    Raises
    ------
    ConfigError
        No level is given, or one cannot be used.
    """
    console, path = error_console(), line.path
    sources.refuse_first({"path": line.path})
    words = [CHECKED, *script_looking.overrides_of(line), *overrides]
    command: RunCommand = validation.typed(composition.compose("run", words), RunCommand)
    levels = {**(read_levels(Path(levels_file)) if levels_file else {}), **command.toggles}
    if not levels:
        raise ConfigError(
            f"perfsweep run {path}: no level is given. Name a file, such as --with runs/"
            f"{Path(path).stem.lower()}-tune/tuned.yaml, or levels, such as toggles.optimizer=fused"
        )
    base, arm = (_planned(command, chosen) for chosen in ({}, levels))
    cls, config = plan.load_workload(command.workload)
    result = _parity(console, base, arm, cls, levels)
    shown = ", ".join(f"{name}={level}" for name, level in levels.items())
    if result.verdict not in SAME:
        console.print(_refusal(path, shown, result), style="red", soft_wrap=True)
        return SOME_FAILED
    iterations = arm.sweep.measure.evidence_iterations
    told = f"{path} runs with {shown}: results of its first {iterations} iterations {result.verdict.value}"
    console.print(told, soft_wrap=True)
    return _become(config, arm, cls)


_LEVELS = (str, int, float)


def read_levels(file: Path) -> dict[str, Any]:
    """Read the levels of a file as `perfsweep tune` writes it.

    Raises
    ------
    ConfigError
        It cannot be read, or holds something else than levels.
    """
    try:
        found = external_workload.read_mapping(file)
    except ConfigError as error:
        raise ConfigError(f"--with={error}. Name a file that perfsweep tune has written") from error
    if not (found and all(isinstance(one, _LEVELS) for one in found.values())):
        raise ConfigError(f"--with={file}: it has no levels. Write TOGGLE: LEVEL lines, as optimizer: fused")
    return found


def _planned(command: RunCommand, levels: Levels) -> Manifest:
    single = SweepCommand(workload=command.workload, toggles=dict(levels), measure=command.measure)
    return plan.single_arm(single, environment.device_facts())


def _parity(
    console: Console, base: Manifest, arm: Manifest, cls: type[Declaration], levels: Levels
) -> ParityResult:
    """Results of the first iterations with the levels, against those without."""
    with tempfile.TemporaryDirectory(prefix="perfsweep-parity-") as place:
        found = []
        for name, manifest in (("as it is", base), ("with the levels", arm)):
            console.print(f"checking results: {name}")
            found.append(_evidence(manifest, cls, Path(place, str(len(found)))))
    chosen = cls.levels_of(levels)
    parity, bounds = loosest([chosen[name] for name in levels if name in chosen], cls.checks)
    return deviations.judge(found[0], found[1], cls.checks, parity, bounds)


def _evidence(manifest: Manifest, cls: type[Declaration], folder: Path) -> Evidence:
    """Run an evidence trial of the one arm of a plan.

    Raises
    ------
    ConfigError
        It did not end well.
    """
    sweep, (arm,) = manifest.sweep, manifest.arms
    fix_imports(sweep.import_paths)
    world = cls.processes(arm.levels, environment.device_facts())
    folder.mkdir(parents=True)
    spec = sweep.trial_spec(arm, Kind.EVIDENCE, "run", folder / "cache", world=world)
    starter = Exec(env={**layout.environment(sweep.measure.allocator, None), "PYTHONHASHSEED": "0"})
    ending = wait(
        starter.start(write_spec(folder, spec), world, _variables(cls, arm.levels)), sweep.measure.timeout_s
    )
    record = read_record(folder)
    failure = record.failure if record else ending.failure if ending else None
    if record is None or failure:
        why = failure.text if failure else "its process ended early"
        raise ConfigError(f"{arm.label}: its first iterations cannot be checked: {why}")
    return read_evidence(folder)


def _variables(cls: type[Declaration], levels: Levels) -> dict[str, str]:
    """Variables that levels set before a process starts."""
    chosen = (one for level in cls.levels_of(levels).values() for one in level.env.items())
    return {name: native.filled(name, text) for name, text in chosen}


def _refusal(path: str, shown: str, result: ParityResult) -> str:
    worst = result.worst
    off = f"{worst.check} {worst.value:.2g}, allowed {worst.bound:.2g}" if worst else result.reason
    return f"{path} is not run: with {shown} its results are {result.verdict.value} ({off})"


def _become(config: Any, arm: Manifest, cls: type[Declaration]) -> int:
    """Run the script in the place of this process: its signals, its terminal and its status are its own."""
    from perfsweep.workloads.script import whole_run

    levels = arm.arms[0].levels
    text = whole_run.said(config, levels, environment.device_facts())
    words = [sys.executable, "-P", "-m", "perfsweep.workloads.script.whole_run", text]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, words, {**os.environ, **_variables(cls, levels)})
