"""A workload from outside the project: where its module lies, and the YAML beside it.

``my_workload.yaml`` next to ``my_workload.py`` holds two things, both optional::

    workload:            # values of the workload's Config
      width: 64
    sweeps:              # named sweeps: sweep=quick; the first is the default
      quick:
        designs: [{kind: one_at_a_time}]
        measure: {rounds: 6}

Nothing of the user's is imported here: help and mistakes answer before torch is loaded.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from workloads.errors import ConfigError

SWEEP_GLOBALS = ("measure", "toggles", "axes", "cluster", "tracking")
"""Parts of a named sweep that lie beside ``sweep`` in the configuration, as in the project's own
``conf/sweep``."""


@dataclass(frozen=True)
class Outside:
    """What the YAML of a workload says; empty where there is none."""

    name: str
    file: Path | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    sweeps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """Name of the configuration in Hydra's groups ``workload`` and ``sweep``."""
        return self.name.replace(":", ".")

    @property
    def default_sweep(self) -> str | None:
        """The first named sweep."""
        return next(iter(self.sweeps), None)

    def register(self) -> None:
        """Make the YAML known to Hydra.

        Raises
        ------
        ConfigError
            A named sweep is no mapping.
        """
        from hydra.core.config_store import ConfigStore

        store = ConfigStore.instance()
        store.store(group="workload", name=self.group, node={**self.workload, "name": self.name})
        for name, values in self.sweeps.items():
            store.store(
                group=f"sweep/{self.group}", name=name, package="_global_", node=self._sweep(name, values)
            )

    def _sweep(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{self.file}: sweeps.{name} must be a mapping, such as {{designs: [{{kind:"
                " one_at_a_time}]}"
            )
        own = {key: value for key, value in values.items() if key not in SWEEP_GLOBALS}
        return {
            "sweep": {"name": name, **own},
            **{key: values[key] for key in SWEEP_GLOBALS if key in values},
        }


def read(name: str) -> Outside:
    """Find the workload `name` (``module:Class``, or an entry point) and read the YAML beside its module.

    Raises
    ------
    ConfigError
        The YAML cannot be read, or says something else than `workload` and `sweeps`.
    """
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
        values = OmegaConf.to_container(OmegaConf.load(file))
    except YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f" line {place.line + 1}" if place else ""
        raise ConfigError(f"{file}{line} is no YAML: {getattr(error, 'problem', None) or error}") from error
    except (errors.OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold a mapping of names to values")
    return {str(key): value for key, value in values.items()}


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
