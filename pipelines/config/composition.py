"""What was typed, composed by Hydra: the folder's overrides, external workloads, a workload's own sweeps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from perfsweep.pipelines.config import external_workload, names, spelling, types
from perfsweep.pipelines.config.external_workload import Outside
from perfsweep.pipelines.config.overrides import FILE, of_folder, quoted
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError, PerfsweepError

if TYPE_CHECKING:
    from omegaconf import DictConfig

FREE = re.compile(
    r"(workload|toggles|axes|cluster\.env_set|tune\.(levels|reference))\.|sweep\.(references|parts)\b"
)
"""Keys below these depend on the workload: Hydra is told to add them."""

_PLAIN = re.compile(r"[\w.]+|\[[\w.]+(, ?[\w.]+)*\]", re.ASCII)
"""Values that mean to Hydra's grammar what they look like."""

_LONG_AXIS = re.compile(r"(\+\+axes\.\w+)=\[((?:(?:0|[1-9]\d*), ?){100,}(?:0|[1-9]\d*))\]", re.ASCII)


def compose(command: str, arguments: Sequence[str]) -> DictConfig:
    """Compose the configuration of a command from what was typed after it.

    Raises
    ------
    ConfigError
        A name is unknown, or an override cannot be meant; nothing of Hydra's own messages is told.
    """
    overrides, axes = _long_axes(_overrides(command, arguments))
    cfg = _composed_from(command, overrides)
    if axes:
        from omegaconf import OmegaConf

        for key, values in axes.items():
            OmegaConf.update(cfg, key, values, force_add=True)
    return cfg


def _long_axes(overrides: Sequence[str]) -> tuple[list[str], dict[str, list[int]]]:
    """Take the long lists of numbers out of overrides, by the keys that they are for.

    Hydra's grammar reads a list in a time that grows with the square of its length.
    """
    matches = {text: _LONG_AXIS.fullmatch(text) for text in overrides}
    keys = [text.partition("=")[0] for text in overrides]
    found = {text: match for text, match in matches.items() if match and keys.count(match[1]) == 1}
    lists = {match[1].lstrip("+"): [int(item) for item in match[2].split(",")] for match in found.values()}
    return [text for text in overrides if text not in found], lists


def _composed_from(command: str, overrides: list[str]) -> DictConfig:
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        with initialize_config_module("perfsweep.conf", version_base="1.3"):
            _bound_files()
            return compose(command, overrides)
    except (HydraException, OmegaConfBaseException, ValueError) as error:  # the last of a defaults list
        raise ConfigError(spelling.refusal(command, error)) from None
    except YAMLError as error:
        raise ConfigError(external_workload.yaml_mistake(error)) from None


def _bound_files() -> None:
    """Have Hydra read files of the user's as we do: no larger, and aliases no further."""
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra._internal.sources_registry import SourcesRegistry
    from hydra.plugins.config_source import ConfigResult

    class Bounded(FileConfigSource):
        def load_config(self, config_path: str) -> ConfigResult:
            file = Path(self.path, self._normalize_file_name(config_path))
            if file.exists():
                external_workload.read_mapping(file)
            return super().load_config(config_path)

    SourcesRegistry.instance().types[Bounded.scheme()] = Bounded


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

    overrides = _overrides(command, arguments)
    _composed_from(command, [text for text in overrides if "=" in text])  # its mistakes are told in our words
    sys.argv = [f"perfsweep {command}", *overrides]
    composed()
    if errors:
        raise errors[0]
    return max(ended, default=0)


def _overrides(command: str, arguments: Sequence[str]) -> list[str]:
    """Everything that Hydra is given, checked as far as names alone can be."""
    arguments = spelling.read(command, arguments)
    own = of_folder(types.parts(command), arguments)
    try:
        spelling.read(command, own)
    except ConfigError as error:
        raise ConfigError(f"{Path.cwd() / FILE}: {error}") from None
    # Another search path may bring names that only Hydra knows.
    if not any(argument.startswith("hydra.searchpath") for argument in arguments):
        names.refuse_unknown(command, [*of_folder(names.groups(command), arguments), *arguments])
    from perfsweep.pipelines.config import validation  # brings Hydra along

    validation.register(command)
    return spelled_out(command, [*own, *arguments])


def spelled_out(command: str, arguments: Sequence[str]) -> list[str]:
    """Spell overrides for Hydra: free keys with ``++``, external workloads and own sweeps by group."""
    workload = names.workload_of(list(arguments))
    own = Outside(workload)
    if external := not _exists(f"workload/{workload}.yaml"):
        own = external_workload.read(workload)
        if own.asked:
            own = own.read_as(registry.declared(own.name))
        own.register()
    spelled = [_spelled(command, argument, own, external) for argument in arguments]
    groups = {argument.partition("=")[0] for argument in arguments}
    if command == "sweep" and workload != names.DEFAULT_WORKLOAD and "sweep" not in groups:
        spelled.append(_default_sweep(own))
    if own.asked and "name" not in groups and "name" in types.parts(command):
        spelled.append(f"name='{own.title}-${{sweep.name}}'")
    if command == "tune" and "tune" not in groups and _exists(f"tune/{own.name}.yaml"):
        spelled.append(f"tune={own.name}")
    return spelled


def _spelled(command: str, argument: str, own: Outside, external: bool) -> str:
    key, equals, value = argument.partition("=")
    if key == "workload" and equals and external:
        return f"workload='{own.group}'"
    if key == "sweep" and equals and value in own.sweeps:
        return f"sweep='{own.group}/{value}'"
    if key == "sweep" and equals and _exists(f"sweep/{own.name}/{value}.yaml"):
        return f"sweep={own.name}/{value}"
    if key.startswith("workload.") or spelling.is_any(spelling.TEXT, command, key):
        argument = f"{key}{equals}{_quoted(value)}"
    if key.startswith(("axes.", "toggles.")) or spelling.is_any(spelling.TEXTS, command, key):
        argument = f"{key}{equals}{_quoted_items(value)}"
    free = FREE.match(key) or (value.startswith("{") and FREE.match(f"{key}."))
    return f"++{argument}" if free else argument


def written(text: str) -> str:
    """Write a text as the value of an override, plain where no quotes are needed."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if _quoted(text) != text:
        return text
    return text if OverridesParser.create().parse_override(f"x={text}").value() == text else quoted(text)


def _quoted(value: str) -> str:
    """Quote for Hydra what its grammar cannot read, such as the arguments of a program.

    It is taken as it was typed: ``workload.args=--lr=0.1`` needs no second pair of quotes.
    """
    if _PLAIN.fullmatch(value):
        return value
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        read = OverridesParser.create().parse_override(f"x={value}")
    except HydraException:
        readable = False
    else:
        readable = not value.startswith("-") or isinstance(read.value(), int | float)
        readable = readable and not read.is_sweep_override()
    return value if readable else quoted(value)


def _quoted_items(value: str) -> str:
    """Quote for Hydra the items of a list that its grammar cannot read, such as ``HEAD~1``."""
    if not (value.startswith("[") and value.endswith("]")) or _quoted(value) == value:
        return _quoted(value)
    # Where the items are options of a program, a comma within one belongs to its value.
    parts = re.split(r",(?=\s*-)" if value[1:].lstrip().startswith("-") else ",", value[1:-1])
    return f"[{','.join(_quoted(item.strip()) for item in parts)}]"


def _default_sweep(own: Outside) -> str:
    if own.default_sweep:
        return f"sweep='{own.group}/{own.default_sweep}'"
    return f"sweep={own.name}/demo" if _exists(f"sweep/{own.name}/demo.yaml") else "sweep=ablation"


def _exists(config_file: str) -> bool:
    return files("perfsweep.conf").joinpath(config_file).is_file()
