"""A workload from outside the project: where its module lies, and the YAML next to it; or a YAML alone.

``my_workload.yaml`` next to ``my_workload.py`` holds two things, both optional::

    workload:            # values of the workload's Config
      width: 64
    sweeps:              # named sweeps: sweep=quick; the first is the default
      quick:
        designs: [{kind: one_at_a_time}]
        measure: {rounds: 6}

Next to a program that a registered workload measures, a YAML holds the values themselves: ``workload=script:
train.yaml`` reads::

    path: train.py           # relative to this file
    args: --batch_size=16
    sweeps:
      quick: {toggles: [amp, compile]}    # short for a one_at_a_time design over these

Nothing of the user's is imported here: help and mistakes answer before torch is loaded.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from importlib.resources import files
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.types import SweepConfig
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.errors import ConfigError, did_you_mean

MOST_BYTES = 100_000
"""Of a YAML file of settings: a list of ten thousand numbers fits."""

SWEEP_GLOBALS = ("measure", "toggles", "axes", "cluster", "tracking")
"""Parts of a named sweep that lie next to ``sweep`` in the configuration, as in the project's own
``conf/sweep``."""


@dataclass(frozen=True)
class Outside:
    """What the YAML of a workload says; empty where there is none.

    `name` is the workload's; `asked` how it was named together with a file, or empty.
    """

    name: str
    file: Path | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    sweeps: Mapping[str, Any] = field(default_factory=dict)
    asked: str = ""

    @property
    def group(self) -> str:
        """Name of the configuration in Hydra's groups ``workload`` and ``sweep``."""
        return re.sub(r"\W+", ".", self.asked or self.name).strip(".")

    @property
    def title(self) -> str:
        """What folders of sweeps begin with: the YAML's name, as several may measure one program."""
        return re.sub(r"[^\w.-]+", "-", self.file.stem.lower()) if self.file else ""

    @property
    def default_sweep(self) -> str | None:
        """The first named sweep."""
        return next(iter(self.sweeps), None)

    def read_as(self, cls: type[Declaration]) -> Outside:
        """Take the values of a YAML alone as fields of the workload, paths among them from the YAML's folder.

        Raises
        ------
        ConfigError
            One is no field of the workload; the message names it and the nearest that is.
        """
        if not self.asked or self.file is None:
            return self
        known = sorted(one.name for one in dataclasses.fields(cls.Config))
        for key in self.workload:
            if key not in known:
                hint = did_you_mean(key, [*known, "sweeps"])
                raise ConfigError(
                    f"{self.file}: {key} is unknown; {hint}it has sweeps and the fields of"
                    f" {self.name}: {', '.join(known)}"
                )
        here = self.file.parent
        values = {
            key: _beside(here, value) if key in cls.paths else value for key, value in self.workload.items()
        }
        return dataclasses.replace(self, workload=values)

    def register(self) -> None:
        """Make the YAML known to Hydra.

        Raises
        ------
        ConfigError
            A named sweep cannot be meant.
        """
        from hydra.core.config_store import ConfigStore

        store = ConfigStore.instance()
        own = {**self._below(), **self.workload, "name": self.name}
        store.store(group="workload", name=self.group, node=own)
        for name, values in self.sweeps.items():
            store.store(
                group=f"sweep/{self.group}", name=name, package="_global_", node=self._sweep(name, values)
            )

    def _below(self) -> dict[str, Any]:
        """What the values lie on: those of the registered workload's own configuration, where it has one."""
        registered = (
            self.asked and files("perfsweep.conf").joinpath("workload", f"{self.name}.yaml").is_file()
        )
        return {"defaults": [self.name, "_self_"]} if registered else {}

    def _sweep(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{self.file}: sweeps.{name} must be a mapping, such as {{toggles: [amp, compile]}} or"
                " {designs: [{kind: one_at_a_time}]}"
            )
        values = self._spelled_out(name, values)
        known = [*(one.name for one in dataclasses.fields(SweepConfig) if one.name != "name"), *SWEEP_GLOBALS]
        for key in values:
            if key not in known:
                hint = did_you_mean(key, known)
                raise ConfigError(
                    f"{self.file}: sweeps.{name}.{key} is unknown; {hint}a sweep has {', '.join(known)}"
                )
        own = {key: value for key, value in values.items() if key not in SWEEP_GLOBALS}
        return {
            "sweep": {"name": name, **own},
            **{key: values[key] for key in SWEEP_GLOBALS if key in values},
        }

    def _spelled_out(self, name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """A sweep without the short form, in which `toggles` lists what is varied, one at a time."""
        if isinstance(values.get("toggles"), Mapping) and "designs" not in values:
            raise ConfigError(
                f"{self.file}: sweeps.{name} measures nothing: a mapping of toggles sets levels of every"
                " arm. List what to measure, {toggles: [amp, compile]}, or which levels of it, {designs:"
                " [{kind: one_at_a_time, levels: {amp: [bf16]}}]}"
            )
        if not isinstance(values.get("toggles"), list):
            return values
        if "designs" in values:
            raise ConfigError(
                f"{self.file}: sweeps.{name} has both designs and a list of toggles; the list is short for"
                " designs: [{kind: one_at_a_time, toggles: [...]}]"
            )
        rest = {key: value for key, value in values.items() if key != "toggles"}
        return {**rest, "designs": [{"kind": "one_at_a_time", "toggles": list(values["toggles"])}]}


def read(name: str) -> Outside:
    """Read the YAML of the workload `name`.

    Of ``module:Class`` or an entry point it lies next to the module; of ``NAME:FILE.yaml`` it is that file.

    Raises
    ------
    ConfigError
        The YAML cannot be read, or says something else than `workload` and `sweeps`.
    """
    if file := file_in(name):
        return _alone(name, file)
    module = _module_file(_target(name).partition(":")[0])
    file = module.with_suffix(".yaml") if module else None
    if file is None or not file.is_file():
        return Outside(name)
    values = read_mapping(file)
    if unknown := sorted(set(values) - {"workload", "sweeps"}):
        raise ConfigError(f"{file}: {unknown[0]} is unknown; the YAML of a workload has workload and sweeps")
    workload, sweeps = ({} if values.get(key) is None else values[key] for key in ("workload", "sweeps"))
    for key, value in (("workload", workload), ("sweeps", sweeps)):
        if not isinstance(value, dict):
            raise ConfigError(f"{file}: {key} must be a mapping of names to values")
    return Outside(name, file, workload, sweeps)


def file_in(name: str) -> Path | None:
    """The file of ``NAME:FILE.yaml``, as an absolute path; None where `name` has another form.

    Raises
    ------
    ConfigError
        There is no such file, or no such workload.
    """
    registered, colon, file = name.partition(":")
    if not colon or not file.endswith((".yaml", ".yml")):
        return None
    if registered not in (known := registry.names()):
        hint = did_you_mean(registered, known)
        raise ConfigError(
            f"workload={name}: {registered} is no workload; {hint}choose from: {', '.join(sorted(known))}"
        )
    if not (path := Path(file).expanduser().absolute()).is_file():
        raise ConfigError(f"workload={name}: {path} does not exist")
    return path


def _alone(name: str, file: Path) -> Outside:
    """A YAML that holds the values of a registered workload, and named sweeps."""
    values = read_mapping(file)
    sweeps = values.pop("sweeps", None) or {}
    if not isinstance(sweeps, dict):
        raise ConfigError(f"{file}: sweeps must be a mapping of names to values")
    return Outside(name.partition(":")[0], file, values, sweeps, name)


def _beside(folder: Path, value: Any) -> Any:
    """A path, or each of several, that is meant from `folder` on."""
    if isinstance(value, list):
        return [_beside(folder, one) for one in value]
    return str((folder / value).resolve()) if isinstance(value, str) and value else value


def read_mapping(file: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file as the project's own configuration is.

    Raises
    ------
    ConfigError
        It is no YAML, or no mapping.
    """
    from omegaconf import OmegaConf, errors
    from yaml import YAMLError

    try:
        values = OmegaConf.to_container(OmegaConf.create(_bounded_text(file)))
    except YAMLError as error:
        raise ConfigError(yaml_mistake(error, file)) from None
    except RecursionError:
        raise ConfigError(
            f"{file} cannot be read: it is nested too deeply. Write it with fewer levels"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file} line {line} is not in UTF-8. Save the file in UTF-8") from None
    except (errors.OmegaConfBaseException, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
        raise ConfigError(f"{file} cannot be read: {why}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold a mapping of names to values")
    return {str(key): value for key, value in values.items()}


def _bounded_text(file: Path) -> str:
    """Read a YAML file of the user's, and no more than can be read in a second.

    Raises
    ------
    OSError, UnicodeDecodeError
        It cannot be read, is no plain file, or has more than `MOST_BYTES`, itself or through its aliases.
    YAMLError
        It is no YAML.
    """
    import yaml

    from perfsweep.pipelines.store.files import plain_file  # brings numpy along

    with plain_file(file) as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES:,} bytes. Leave out what is no setting")
    text = content.decode()
    if b"*" in content and _size(yaml.compose(text, yaml.SafeLoader), {}) > MOST_BYTES:
        raise OSError(errno.EFBIG, "its aliases make it too large. Write out what they are for")
    return text


def _size(node: Any, known: dict[int, float]) -> float:
    """How many nodes there are with every alias written out; without end where one contains itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = node.value if isinstance(getattr(node, "value", None), list) else []
        inner = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
        known[id(node)] = 1 + sum(_size(one, known) for one in inner)
    return known[id(node)]


def yaml_mistake(error: Exception, file: Path | None = None) -> str:
    """Write a sentence on what is no YAML, with the file, as it names itself if it is not given, and line."""
    place = getattr(error, "problem_mark", None)
    line = f" line {place.line + 1}" if place else ""
    name = file or getattr(place or error, "name", "a configuration file")
    remedy = "; mappings are KEY: VALUE, indented by spaces" if place else "; write it again as text in UTF-8"
    problem = (
        getattr(error, "problem", None) or getattr(error, "reason", None) or " ".join(str(error).split())
    )
    return f"{name}{line} is no YAML: {problem}{remedy}"


def _target(name: str) -> str:
    if ":" in name:
        return name
    from importlib.metadata import entry_points

    return next((point.value for point in entry_points(group="perfsweep.workloads", name=name)), "")


def _module_file(module: str) -> Path | None:
    """Find the file of a module without importing the packages around it."""
    top, *below = module.split(".")
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # a console script's path does not hold the user's folder
    try:
        spec = importlib.util.find_spec(top) if top else None
    except ValueError:  # a module that something has put into sys.modules by hand
        return None
    dotted = top
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        dotted = f"{dotted}.{part}"
        spec = PathFinder.find_spec(dotted, list(spec.submodule_search_locations))
    return Path(spec.origin) if spec and spec.has_location and spec.origin else None
