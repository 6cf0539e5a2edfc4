"""Profile trials of an arm: a process per tool and circumstance, in a folder that no comparison reads.

What a tool found replaces what it found before only once it is whole, so that an interruption costs nothing
that was there.
"""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.spawn import Child, Exec, fix_imports, wait
from perfsweep.pipelines.profiling import profiled_process
from perfsweep.pipelines.profiling.tool import BARE, NAMES, refusal
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.profiles import (
    UNFINISHED,
    Kept,
    ProfileSpec,
    arm_folder,
    read_profile,
    write_profile,
    write_spec,
)
from perfsweep.pipelines.store.records import (
    Arm,
    Failure,
    Kind,
    Manifest,
    Outcome,
    SweepFolder,
    TrialRecord,
    TrialSpec,
    read_record,
)
from perfsweep.pipelines.trial.identity import code_digest
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.errors import ConfigError, UnsupportedHere, did_you_mean

CHANGED = (
    "the workload's code has changed since the sweep was planned: this is a profile of the code as it is now"
)


@dataclass(frozen=True)
class Ended:
    """How the profile trial of one tool ended: with a profile, or with a record that says why not."""

    options: ProfileConfig
    folder: Path
    kept: Kept | None
    failure: Failure | None = None
    outcome: Outcome = Outcome.OK


def arm_called(manifest: Manifest, name: str) -> Arm:
    """The arm with this name, label or id; a unique beginning of an id will do.

    Raises
    ------
    ConfigError
        There is none, or there are several.
    """
    names = manifest.arm_names
    named = manifest.sweep.references
    known = [a for a in manifest.arms if a.id == named.get(name) or name in (a.id, a.label, names.get(a.id))]
    found = known or [arm for arm in manifest.arms if len(name) >= 4 and arm.id.startswith(name)]
    if len(found) == 1 or len({arm.label for arm in found}) == 1:
        return found[0]
    choices = list(dict.fromkeys([*named, *(names.get(arm.id) or arm.label for arm in manifest.arms)]))
    what = f"--arm {name} is {'several arms' if found else 'no arm'} of {manifest.sweep.name}"
    raise ConfigError(f"{what}; {did_you_mean(name, choices)}choose from: {', '.join(choices)}")


def wanted(config: ProfileConfig) -> tuple[list[ProfileConfig], list[str]]:
    """The profiles that a configuration asks for, and why some of its tools cannot be used here.

    Raises
    ------
    UnsupportedHere
        The only tool that was asked for is one of those.
    """
    asked = NAMES if config.tool == "all" else (config.tool,)
    refused = {tool: reason for tool in asked if (reason := refusal(tool, config.slice))}
    if config.tool in refused:
        raise UnsupportedHere(refused[config.tool])
    able = [tool for tool in asked if tool not in refused]
    variants = itertools.product(able, _each(config.hook, "on", "off"), _each(config.debug_log, "off", "on"))
    return [
        dataclasses.replace(config, tool=tool, hook=hook, debug_log=debug) for tool, hook, debug in variants
    ], list(refused.values())


def _each(choice: str, *both: str) -> tuple[str, ...]:
    """The circumstances that an option asks for; where it asks for both, the usual one comes first."""
    return both if choice == "both" else (choice,)


class Profiling:
    """Runs the profile trials of one arm of a sweep, one after the other.

    Raises
    ------
    ConfigError
        The arm runs another version of the code than the checkout's.
    """

    def __init__(self, folder: SweepFolder, manifest: Manifest, arm: Arm) -> None:
        if arm.version:
            raise ConfigError(
                f"{arm.label}: arms of a sweep with versions are not profiled; check that version out, and"
                " give `perfsweep profile` the workload in place of the folder"
            )
        self.folder, self.manifest, self.arm = folder, manifest, arm
        fix_imports(manifest.sweep.import_paths)
        cls, _ = declared_workload(manifest.sweep.workload, manifest.sweep.config)
        self._code = code_digest(cls)
        levels = cls.levels_of(arm.levels).values()
        self._world = cls.processes(arm.levels, environment.device_facts())
        self._env = {name: value for level in levels for name, value in level.env.items()}
        self._server = (
            None
            if cls.needs_exec(arm.levels)
            else ForkServer([cls.__module__, "perfsweep.pipelines.profiling.profiled_process"])
        )

    @property
    def changed(self) -> bool:
        """Whether the code is another than the sweep was planned with."""
        return self._code != self.manifest.sweep.code

    def run(self, options: ProfileConfig) -> Ended:
        """Run a tool; what it left before is replaced once its profile is whole."""
        place = arm_folder(self.folder, self.arm) / options.folder_name
        ended = self._trial(options, place.with_name(place.name + UNFINISHED))
        if ended.kept is None:
            return ended
        profile, more = ended.kept.profile, dict[str, Any]()
        if not profile.bare_ns:  # the first iteration of a process: only another one has it without the tool
            bare = self._trial(
                dataclasses.replace(options, tool=BARE), place.with_name(f"{BARE}{UNFINISHED}")
            )
            if bare.kept is None:
                return bare
            more["bare_ns"] = bare.kept.profile.bare_ns
            shutil.rmtree(bare.folder, ignore_errors=True)
        if self.changed:
            more["notes"] = (CHANGED, *profile.notes)
        if more:
            write_profile(ended.folder, profile.model_copy(update=more))
        shutil.rmtree(place, ignore_errors=True)
        ended.folder.replace(place)
        return Ended(options, place, read_profile(place))

    def _trial(self, options: ProfileConfig, folder: Path) -> Ended:
        shutil.rmtree(folder, ignore_errors=True)
        spec = ProfileSpec(trial=self.spec(), options=options)
        began = time.monotonic()
        ending = wait(self._start(write_spec(folder, spec)), self.manifest.sweep.measure.timeout_s)
        record = read_record(folder)
        if record is None:
            outcome, failure = (ending.outcome, ending.failure) if ending else (Outcome.FAILED, None)
            record = TrialRecord.of(spec.trial, began, outcome=outcome, failure=failure)
        if record.outcome is not Outcome.OK:
            return Ended(options, folder, None, record.failure, record.outcome)
        return Ended(options, folder, read_profile(folder))

    def _start(self, file: Path) -> list[Child]:
        if self._server is not None:
            return [self._server.call(profiled_process.forked, str(file))]
        return Exec("perfsweep.pipelines.profiling.profiled_process").start(file, self._world, self._env)

    def spec(self) -> TrialSpec:
        """What every profile process of the arm is told about the arm."""
        sweep, cache = self.manifest.sweep, self.folder.cache_dir
        return sweep.trial_spec(self.arm, Kind.PROFILE, "profile", cache, code=self._code, world=self._world)
