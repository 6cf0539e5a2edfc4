"""`perfsweep run train.py --with tuned.yaml`: a script to its end with levels, checked for parity first."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from perfsweep.pipelines.commands.scripts import looking
from perfsweep.pipelines.config import composition, external_workload, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import RunCommand, SweepCommand
from perfsweep.pipelines.execution.spawn import Exec, fix_imports, wait
from perfsweep.pipelines.exits import SOME_FAILED
from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict, loosest
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Kind, Manifest, read_evidence, read_record, write_spec
from perfsweep.pipelines.terminal import error_console
from perfsweep.pipelines.trial import layout
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads import native
from perfsweep.workloads.api import Declaration, Evidence, Levels
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import sources

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
    words = [CHECKED, *looking.overrides_of(line), *overrides]
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
