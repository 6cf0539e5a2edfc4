"""From what Hydra composes to typed options, checked once.

Hydra composes once; after that, arms are made by updating values, which costs microseconds.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from perfsweep.fields import refusals
from perfsweep.pipelines.config import tracking
from perfsweep.pipelines.config.types import COMMANDS
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.errors import ConfigError, did_you_mean

Command = TypeVar("Command")


@functools.cache
def register(command: str) -> None:
    """Make a command's type known to Hydra, under the name that its file in `conf/` extends."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name=f"{command}_command", node=_editable(COMMANDS[command]))


def typed(cfg: DictConfig, command: type[Command]) -> Command:
    """Turn a composed configuration into its dataclass, and check every option.

    Raises
    ------
    ConfigError
        A value is missing or out of range; the message names the field.
    """
    known = [field.name for field in dataclasses.fields(command)]  # type: ignore[arg-type]
    if unknown := sorted(map(str, set(cfg) - set(known))):
        raise ConfigError(f"{unknown[0]} is unknown; choose from: {', '.join(known)}")
    try:
        # Hydra applies overrides to typed nodes; merging again types what plain YAML groups brought in.
        values: Any = OmegaConf.to_object(OmegaConf.merge(_editable(command), cfg))
    except MissingMandatoryValue as error:
        raise ConfigError(f"{error.full_key} is missing: give it as {error.full_key}=VALUE") from None
    except OmegaConfBaseException as error:
        from perfsweep.pipelines.config import (
            spelling,  # every trial imports this module, and is refused nothing
        )

        raise ConfigError(spelling.refusal(_name_of(command), error)) from None
    _check(values)
    return values


def workload_config(cls: type[Declaration], values: dict[str, Any]) -> Any:
    """Turn the values of a workload's configuration into its own dataclass.

    Raises
    ------
    ConfigError
        A field does not exist or has a value of the wrong type; the message names it.
    """
    known = {f.name for f in dataclasses.fields(cls.Config)}
    if unknown := sorted(set(values) - known):
        hint = did_you_mean(unknown[0], known)
        raise ConfigError(
            f"workload.{unknown[0]} does not exist; {hint}{cls.__name__} has: {', '.join(sorted(known))}"
        )
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(cls.Config), text_keys(values)))
    except OmegaConfBaseException as error:
        field_name = getattr(error, "full_key", "") or "?"
        if "ListConfig" in str(error) and isinstance(value := values.get(field_name), str | int | float):
            raise ConfigError(
                f"workload.{field_name}={value} is no list: write 'workload.{field_name}=[{value}]'"
            ) from error
        from perfsweep.pipelines.config import spelling

        declared = {one.name: one for one in dataclasses.fields(cls.Config)}.get(field_name)
        raise ConfigError(
            spelling.wrong_type(f"workload.{field_name}", values.get(field_name), declared)
        ) from error


def text_keys(value: Any) -> Any:
    """Write the keys of nested mappings as texts, as the JSON of a manifest gives them back.

    YAML reads on and off as booleans: they are meant as they were written.
    """
    if isinstance(value, (Mapping, DictConfig)):
        return {_text(key): text_keys(inner) for key, inner in value.items()}
    return [text_keys(inner) for inner in value] if isinstance(value, (list, ListConfig)) else value


def _text(key: Any) -> str:
    return ("on" if key else "off") if isinstance(key, bool) else str(key)


@functools.cache
def _editable(command: type[Any]) -> DictConfig:
    """Make the structured configuration of a command; in OmegaConf nothing overrides what is frozen."""
    node = OmegaConf.structured(command)
    for name in node:
        if OmegaConf.is_dict(part := node._get_node(name)):
            OmegaConf.set_readonly(part, None)
    return node


def _check(values: Any) -> None:
    """Refuse the first option that is out of range, and options that contradict one another."""
    for sentence in refusals(values):
        raise ConfigError(sentence)
    names = {field.name for field in dataclasses.fields(values)}
    if "tracking" in names:
        tracking.check(values.tracking)
    if "cluster" in names:
        values.cluster.check()


def _name_of(command: type[Any]) -> str:
    return next(name for name, one in COMMANDS.items() if one is command)
