"""What was typed, composed by Hydra: the folder's overrides, external workloads, a workload's own sweeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from pipelines.config import external_workload, home, names
from pipelines.config.external_workload import Outside
from workloads.errors import ConfigError, PerfsweepError

if TYPE_CHECKING:
    from omegaconf import DictConfig

FREE = re.compile(r"(toggles|axes|tune\.(levels|reference))\.")
"""Keys below these depend on the workload: Hydra is told to add them."""


def compose(command: str, arguments: Sequence[str]) -> DictConfig:
    """Compose the configuration of a command from what was typed after it.

    Raises
    ------
    ConfigError
        A name is unknown, or an override cannot be meant; Hydra's own messages become one paragraph.
    """
    overrides = _overrides(command, arguments)
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_module("conf", version_base="1.3"):
            return compose(command, overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_paragraph(error)) from error


def run_hydra(command: str, arguments: Sequence[str], action: Callable[[DictConfig], int]) -> int:
    """Leave the command line to Hydra, for its own options, such as ``--cfg job``; the worst status.

    Raises
    ------
    PerfsweepError
        The action raised it; Hydra would print a traceback in its place.
    """
    import hydra

    ended: list[int] = []
    errors: list[PerfsweepError] = []

    @hydra.main(version_base="1.3", config_path="pkg://conf", config_name=command)
    def composed(cfg: DictConfig) -> None:
        try:
            ended.append(action(cfg))
        except PerfsweepError as error:
            errors.append(error)

    sys.argv = [f"perfsweep {command}", *_overrides(command, arguments)]
    composed()
    if errors:
        raise errors[0]
    return max(ended, default=0)


def _overrides(command: str, arguments: Sequence[str]) -> list[str]:
    """Everything that Hydra is given, checked as far as names alone can be."""
    # Another search path, or an option of Hydra's, may bring names that only Hydra knows.
    if not any(argument.startswith(("hydra.searchpath", "-")) for argument in arguments):
        names.refuse_unknown(command, [*home.overrides(names.groups(command), arguments), *arguments])
    from pipelines.config import types, validation  # brings Hydra along

    validation.register()
    return spelled_out(command, [*home.overrides(types.parts(command), arguments), *arguments])


def spelled_out(command: str, arguments: Sequence[str]) -> list[str]:
    """Spell overrides for Hydra: free keys with ``++``, external workloads and own sweeps by group."""
    workload = names.workload_of(list(arguments))
    own = Outside(workload)
    if external := not _exists(f"workload/{workload}.yaml"):
        own = external_workload.read(workload)
        own.register()
    spelled = [_spelled(argument, workload, own, external) for argument in arguments]
    groups = {argument.partition("=")[0] for argument in arguments}
    if command == "sweep" and workload != names.DEFAULT_WORKLOAD and "sweep" not in groups:
        spelled.append(_default_sweep(workload, own))
    if command == "tune" and "tune" not in groups and _exists(f"tune/{workload}.yaml"):
        spelled.append(f"tune={workload}")
    return spelled


def _spelled(argument: str, workload: str, own: Outside, external: bool) -> str:
    key, equals, value = argument.partition("=")
    if key == "workload" and equals and external:
        return f"workload='{own.group}'"
    if key == "sweep" and equals and (value in own.sweeps or _exists(f"sweep/{workload}/{value}.yaml")):
        return f"sweep='{own.group}/{value}'" if external else f"sweep={workload}/{value}"
    free = FREE.match(key) or (external and key.startswith("workload."))
    return f"++{argument}" if free else argument


def _default_sweep(workload: str, own: Outside) -> str:
    if own.default_sweep:
        return f"sweep='{own.group}/{own.default_sweep}'"
    return f"sweep={workload}/demo" if _exists(f"sweep/{workload}/demo.yaml") else "sweep=ablation"


def _exists(config_file: str) -> bool:
    return files("conf").joinpath(config_file).is_file()


def _paragraph(error: Exception) -> str:
    """Hydra's message without its hints about tracebacks, in one paragraph."""
    text = str(error) if error.__cause__ is None else f"{error} {error.__cause__}"
    lines = [line.strip() for line in text.partition("Config search path")[0].splitlines()]
    hints = ("full_key", "object_type", "reference_type", "Set the env")
    return " ".join(dict.fromkeys(line for line in lines if line and not line.startswith(hints)))
