"""The workload that a trial was planned with, from its specification: its values were checked by the plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from perfsweep.pipelines.store.typed_json import Misfit, build
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration, Workload
from perfsweep.workloads.errors import ConfigError


def declared_workload(name: str, values: Mapping[str, Any]) -> tuple[type[Declaration], Any]:
    """What `load_workload` finds, for those who ask what it declares and run nothing; raises as that does."""
    cls = registry.declared(name)
    config = typed_config(cls, values)
    return cls.configured(config), config


def load_workload(name: str, values: Mapping[str, Any]) -> tuple[type[Workload], Any]:
    """Find a workload and its typed configuration; the class is the one that this configuration makes it.

    Raises
    ------
    ConfigError
        There is no such workload, or it has no such field, or one of another type.
    """
    cls = registry.find(name)
    config = typed_config(cls, values)
    return cls.configured(config), config


def known_workload(name: str, values: Mapping[str, Any]) -> tuple[type[Declaration], Any]:
    """As `declared_workload`, for a reader: imports no module that the records may have brought along.

    What is built in, installed or imported already is known.

    Raises
    ------
    ConfigError
        The workload is none of these, or as `load_workload` says.
    """
    if name not in registry.names() and registry.module_of(name) not in sys.modules:
        raise ConfigError(
            f"workload={name}: reading a sweep imports no code; `compare --trust` imports it from here"
        )
    return declared_workload(name, values)


def typed_config(cls: type[Declaration], values: Mapping[str, Any]) -> Any:
    """Turn the values of a workload's configuration into its own dataclass.

    Raises
    ------
    ConfigError
        There is no such field, or a value is of another type.
    """
    try:
        return build(cls.Config, values, tuples=False)
    except Misfit as error:
        raise ConfigError(f"workload.{error}") from error
