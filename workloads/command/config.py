"""What a command is, as plain data, and what follows from it: toggles, units and names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.workloads import custom_toggles
from perfsweep.workloads.command.results import Sources
from perfsweep.workloads.custom_toggles import CustomToggles
from perfsweep.workloads.declarations import Toggle
from perfsweep.workloads.errors import ConfigError


@dataclass(frozen=True)
class CommandConfig:
    """A program that is run as a whole, again and again.

    Attributes
    ----------
    command : program and arguments; no shell reads them. ``{seed}``, ``{scratch}`` (a folder that is empty
        before every run) and ``{TOGGLE}`` are filled in; arguments of toggles that it does not name follow
    folder : current folder of the program
    toggles : see `perfsweep.workloads.custom_toggles`
    evidence : what shows the result: `file` (paths), `json` (keys of the last JSON line of the output),
        `pattern` (regular expressions with named groups, the last match counts), `output` (its content)
    prepare : another command, run before every run and not timed
    timeout : seconds for one run; None: as long as the trial has
    expected_status : exit status of a run that went well
    units : what one run does, as a number or as a name in the evidence that the program reports
    data : files that the program reads; with other content, times are not compared
    """

    command: str = ""
    folder: str = "."
    toggles: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    prepare: str = ""
    timeout: float | None = None
    expected_status: int = 0
    units: str = "1"
    data: list[str] = field(default_factory=list)


def toggles_of(custom: CustomToggles) -> tuple[Toggle, ...]:
    """Toggles that act on the command alone: a trial needs no start of its own for their variables.

    Raises
    ------
    ConfigError
        A level replaces functions, or asks for several processes.
    """
    return tuple(_acting_outside(toggle, custom) for toggle in custom.toggles)


def _acting_outside(toggle: Toggle, custom: CustomToggles) -> Toggle:
    for level in toggle.levels:
        place = f"{toggle.source}.{toggle.name}.{level.value}"
        if custom.changes[toggle.name, str(level.value)].replace:
            raise ConfigError(f"{place}.replace: a command is no Python module, so nothing in it is replaced")
        if level.ranks > 1:
            raise ConfigError(f"{place}.ranks: write the launcher into the command, such as torchrun")
    levels = tuple(dataclasses.replace(level, env={}) for level in toggle.levels)
    return dataclasses.replace(toggle, levels=levels)


def unit_of(units: str, sources: Sources) -> str:
    """Name what times are per.

    Raises
    ------
    ConfigError
        `units` is neither a number above 0 nor something that the program reports.
    """
    if units in sources.reported:
        return units
    try:
        number = float(units)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        known = ", ".join(sources.reported) or "workload.evidence names nothing"
        raise ConfigError(
            f"workload.units={units} must be a number above 0 or what the program reports: {known}"
        )
    return "run" if number == 1 else "unit"


def title_of(words: list[str], files: tuple[Path, ...]) -> str:
    """Name folders of sweeps by the script, or else by the program."""
    return f"command-{(files[-1] if files else Path(words[0])).stem}"


def planned(config: CommandConfig) -> CommandConfig:
    """Fill in what depends on where the command was typed, and spell levels as JSON keeps them.

    Raises
    ------
    ConfigError
        The folder, or a file of the data, does not exist.
    """
    folder = Path(config.folder).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigError(f"workload.folder={config.folder} is no folder; create it, or name another")
    for name in config.data:
        if not (folder / name).is_file():
            raise ConfigError(f"workload.data: {folder / name} does not exist")
    spelled = {name: _spelled(values) for name, values in config.toggles.items()}
    return dataclasses.replace(config, folder=str(folder), toggles=spelled)


def _spelled(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    return {str(name): body for name, body in custom_toggles.named(values).items()}
