"""`perfsweep tune train.py`: the levels that win together on a script, and a patch of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines.check import first_look
from perfsweep.pipelines.check.first_look import FirstLook, NotMeasurable
from perfsweep.pipelines.commands import frontier
from perfsweep.pipelines.commands.scripts import looking, patching
from perfsweep.pipelines.commands.scripts.patching import TUNED, Measured
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.pasted_line import PastedLine
from perfsweep.pipelines.config.types import SweepCommand, TuneCommand, TuneConfig
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.terminal import bold, console_here
from perfsweep.workloads.api import Declaration, Toggle
from perfsweep.workloads.errors import ConfigError, did_you_mean
from perfsweep.workloads.script import sources

DEFAULTS = ("tune=outside", "tracking=disabled")
"""What is asked for where nothing else is typed."""


def tune_script(
    line: PastedLine, overrides: Sequence[str], apply: bool, timeout: float | None, **options: Any
) -> int:
    """Look at a script, search the fastest arm, and print and keep a patch that has it; status as of a sweep.

    Parameters
    ----------
    overrides : options of `perfsweep tune`
    apply : whether to write the patch into the script; one that is kept is not measured again
    timeout : seconds for each trial
    options : the ones that `perfsweep script` has too

    Raises
    ------
    ConfigError
        The script or an option cannot be used, or a file has changed since it was measured.
    """
    console, path, args = console_here(), line.path, line.args
    sources.refuse_first({"path": line.path})
    script = looking.overrides_of(line, options)
    script += [] if timeout is None else [f"measure.timeout_s={timeout}"]
    cfg = composition.compose("tune", [*DEFAULTS, *script, *overrides])
    command: TuneCommand = validation.typed(cfg, TuneCommand)
    cls, _ = plan.load_workload(command.workload)
    folder = Path(command.runs) / plan.sweep_name(command, cls)
    if apply and patching.is_kept(folder, args):
        return patching.apply(console, folder)
    same = [word for word in overrides if word.startswith(("measure.", "workload."))]
    status = _tuned(console, path, cfg, command, cls, folder, args, [*script, *same])
    if apply and status == DONE and patching.is_kept(folder, args):
        return patching.apply(console, folder)
    return status


def _tuned(
    console: Console,
    path: str,
    cfg: DictConfig,
    command: TuneCommand,
    cls: type[Declaration],
    folder: Path,
    args: Sequence[str],
    words: Sequence[str],
) -> int:
    toggles = cls.toggles_named({*command.tune.toggles, *command.tune.levels})
    able(command.tune, toggles, {})  # a mistake shows before the script is run
    try:
        sight = _seen(console, path, command)
    except NotMeasurable as reason:
        return looking.refused(console, path, reason)
    levels = able(command.tune, toggles, sight["obstacles"])
    if not levels:
        reasons = "; ".join(dict.fromkeys(sight["obstacles"].values()))
        _say(console, f"{path}: no toggle that is to be tried can act: {reasons}")
        return DONE
    _name_on_request(command, cls, levels)
    command.tune = dataclasses.replace(command.tune, toggles=[], levels=levels)
    status, tuned = frontier.tuned(console, command, cfg, folder / TUNED)
    if command.dry_run or not tuned:
        if status == DONE and not command.dry_run:
            _say(console, f"{path}: no toggle makes it faster with the same results; no patch is written")
        return status
    console.print(bold("\npatch", f" of {path}"))
    measured = Measured(path, tuple(args), folder, tuned, cls, sight)
    return patching.patch(console, measured, words)


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)


def _seen(console: Console, path: str, command: TuneCommand) -> Mapping[str, Any]:
    """What a look at the script shows.

    Raises
    ------
    ConfigError
        It does not repeat itself, so that no results could be compared.
    """
    single = SweepCommand(workload=command.workload, toggles=command.toggles, measure=command.measure)
    with FirstLook(*first_look.planned(single)) as look:
        seen, parting = looking.looked(look, console, path)
    if parting is not None:
        raise ConfigError(
            f"{path} does not repeat itself, so results of its arms cannot be compared:"
            f" {looking.repeats(parting).removeprefix('no: ')}. Seed it first, then tune it"
        )
    return seen["sight"]


def able(tune: TuneConfig, toggles: Sequence[Toggle], obstacles: Mapping[str, str]) -> dict[str, list[Any]]:
    """The levels to try that can act, by toggle.

    `tune.toggles` chooses among those of `tune.levels`, and brings all levels of any other toggle.

    Raises
    ------
    ConfigError
        A toggle is unknown.
    """
    every = {toggle.name: [level.value for level in toggle.levels[1:]] for toggle in toggles}
    if unknown := [name for name in (*tune.toggles, *tune.levels) if name not in every]:
        hint = did_you_mean(unknown[0], every)
        raise ConfigError(
            f"tune.toggles={unknown[0]}: it is no toggle. {hint}Choose from: {', '.join(every)}"
        )
    wanted = {name: tune.levels.get(name) or every[name] for name in tune.toggles} or tune.levels
    levels = {
        name: [value for value in values if f"{name}={value}" not in obstacles]
        for name, values in wanted.items()
        if name not in obstacles
    }
    return {name: values for name, values in levels.items() if values}


def _name_on_request(command: TuneCommand, cls: type[Declaration], levels: Mapping[str, Any]) -> None:
    """Set toggles that are only there where they are named to their baselines."""
    for toggle in cls.on_request:
        if toggle.name in levels:
            command.toggles.setdefault(toggle.name, toggle.levels[0].value)
