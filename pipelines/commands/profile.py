"""`perfsweep profile`: of an arm that is spelled out, of an arm of a sweep, and the difference of two."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import ProfileCommand, ProfileConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.exits import DONE, INTERRUPTED, SOME_FAILED
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.profiling.profile_trials import CHANGED, Ended, Profiling, arm_called, wanted
from perfsweep.pipelines.profiling.tool import refuse_slice
from perfsweep.pipelines.report import profile_tables
from perfsweep.pipelines.store import provenance, writers
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.profiles import Kept, arm_folder, kept_profiles
from perfsweep.pipelines.store.records import Arm, Manifest, Outcome, SweepFolder, opened
from perfsweep.pipelines.terminal import console_here, shell_line
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.errors import ConfigError

TOP = 20
"""Lines of a difference that are shown."""

SETTLED = re.compile(r"(workload|toggles|measure|tracking|runs)[.=]")
"""Overrides that mean nothing next to the folder of a sweep."""


def profile(cfg: DictConfig) -> int:
    """Profile the arm that the configuration spells out, under ``runs/<workload>-profile``."""
    command: ProfileCommand = validation.typed(cfg, ProfileCommand)
    own = {name: value for name, value in vars(command).items() if name != "profile"}
    single = SweepCommand(**own, sweep=SweepConfig(name="profile"))
    manifest = plan.alone(plan.single_arm(single, environment.device_facts()), single)
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    text = provenance.sweep_yaml(cfg)
    return _profiled(
        folder, manifest, manifest.arms[0], command.profile, lambda: launch.prepare(folder, manifest, text)
    )


def profile_folder(
    overrides: Sequence[str], arm: str | None, diff: tuple[str, str] | None, tool: str | None
) -> int:
    """Profile an arm of a sweep, or compare two profiles; `overrides`: a folder and ``profile.FIELD=VALUE``.

    Raises
    ------
    ConfigError
        One of them is something else, or the folder of the sweep is missing.
    """
    own = [word for word in overrides if word.startswith("profile.")]
    folders = [word for word in overrides if word not in own]
    if settled := [*filter(SETTLED.match, folders), *folders[1:]]:
        remedy = "with the folder of a sweep give profile.FIELD=VALUE only"
        raise ConfigError(f"{settled[0]}: the sweep has settled that; {remedy}")
    if diff:
        return show_difference(folders[0] if folders else None, diff, tool)
    if not folders:
        remedy = "perfsweep profile runs/SWEEP --arm ARM"
        raise ConfigError(f"--arm needs the folder of the sweep that the arm is of: {remedy}")
    options = validation.typed(composition.compose("profile", own), ProfileCommand).profile
    return profile_arm(folders[0], arm, options)


def profile_arm(path: str, name: str | None, options: ProfileConfig) -> int:
    """Profile an arm as its sweep measured it, in the sweep's folder, whose report then links the profile."""
    folder, manifest = opened(path)
    if name is None:
        arms = ", ".join(dict.fromkeys([*manifest.sweep.references, *(arm.label for arm in manifest.arms)]))
        raise ConfigError(f"--arm is missing; say which arm of {manifest.sweep.name} to profile: {arms}")
    status = _profiled(folder, manifest, arm_called(manifest, name), options, lambda: None)
    if status != INTERRUPTED and folder.report_file.exists():
        api.Sweep(folder, manifest).report()
        console_here().print(f"report: {folder.report_file} links these profiles", soft_wrap=True)
    return status


def show_difference(sweep: str | None, names: Sequence[str], tool: str | None) -> int:
    """Show where the time went between two arms of a sweep, or between two folders of profiles."""
    sides = [_of_arm(sweep, name) if sweep else profile_tables.profiles_at(name) for name in names]
    console = console_here()
    for before, after in profile_tables.pairs(sides[0], sides[1], tool):
        profile_tables.show_difference(console, before, after, TOP)
    return DONE


def _of_arm(path: str, name: str) -> list[Kept]:
    """The profiles of an arm of a sweep."""
    folder = SweepFolder(path)
    remedy = f"make one with `{shell_line('profile', path, '--arm', name)}`"
    found = kept_profiles(folder)
    if not found:
        opened(path)  # says so where it is no sweep at all
        raise ConfigError(f"{path} has no profiles yet; {remedy}")
    own = [kept for kept in found if name in (kept.profile.arm.label, kept.profile.arm.id)]
    if own:
        return own
    arm = arm_called(folder.read_manifest(), name)
    if own := [kept for kept in found if kept.profile.arm.id == arm.id]:
        return own
    raise ConfigError(f"arm {name} has no profile yet; {remedy}")


def _profiled(
    folder: SweepFolder, manifest: Manifest, arm: Arm, options: ProfileConfig, prepare: Callable[[], None]
) -> int:
    """Run the profiles asked for and show each as it ends; what is whole stays, whatever comes after."""
    console = console_here()
    refuse_slice(options.slice, declared_workload(manifest.sweep.workload, manifest.sweep.config)[0].shape)
    asked, refused = wanted(options)
    for reason in refused:
        console.print(reason, style="yellow", soft_wrap=True)
    place, subject = arm_folder(folder, arm), f"{arm.label} of {manifest.sweep.workload}"
    console.print(f"profiling {subject}; profiles: {place}", soft_wrap=True)
    with writers.locked(folder):
        prepare()
        profiling = Profiling(folder, manifest, arm)
        if profiling.changed:
            console.print(CHANGED, style="yellow")
        try:
            return _each(console, profiling, asked, options.top)
        except KeyboardInterrupt:
            kept = f"\ninterrupted; profiles that were whole are kept in {place}"
            console.print(kept, soft_wrap=True)
            return INTERRUPTED


def _each(console: Console, profiling: Profiling, asked: Sequence[ProfileConfig], top: int) -> int:
    status = DONE
    for ended in map(profiling.run, asked):
        if ended.kept is not None:
            from perfsweep.pipelines.report import arm_charts  # with what draws

            arm_charts.write_memory_picture(ended.kept)
            profile_tables.show(console, ended.kept, top)
            continue
        status = SOME_FAILED
        console.print(f"\n{_why(ended)}", style="red", markup=False, soft_wrap=True)
    return status


def _why(ended: Ended) -> str:
    """One sentence about a profile that there is none of."""
    options, failure = ended.options, ended.failure
    reason = failure.message if failure else "no reason was left"
    kind = (
        ""
        if failure is None or ended.outcome in (Outcome.UNSUPPORTED, Outcome.TIMEOUT)
        else f"{failure.type}: "
    )
    name = f"{options.tool}, {options.variant}" if options.variant else options.tool
    return f"{name}: {ended.outcome.value}: {kind}{reason}; log: {ended.folder / 'log.txt'}"
