"""`perfsweep list` and `perfsweep describe`: what there is to measure, and what can be switched."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.text import Text

from perfsweep.fields import default_of
from perfsweep.pipelines import units
from perfsweep.pipelines.config import external_workload, names
from perfsweep.pipelines.config.validation import text_keys, workload_config
from perfsweep.pipelines.execution import executor_choice
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.terminal import bold, console_here
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads import registry
from perfsweep.workloads.api import Choices, Declaration, Device, Level, Toggle

_GENERAL = ("builtins", "perfsweep.workloads.api", "perfsweep.workloads.training.loop")
"""Modules whose classes say nothing of what one workload computes."""

NARROWEST = 40
"""Columns that lines of words keep, however narrow the terminal is."""


def list_names() -> int:
    """Print a line of words for each workload, and below it its named sweeps."""
    console = console_here()
    every = [*sorted(registry.names()), *names.workloads_here()]
    width = max(map(len, every)) + 2
    for name in every:
        indent, room = " " * width, max(console.width, width + NARROWEST)
        lines = [names.purpose(name), f"sweeps: {', '.join(names.sweeps(name))}"]
        below = "\n".join(
            textwrap.fill(line, room, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
            for line in filter(None, lines)
        )
        console.print(bold(name, below[len(name) :]), soft_wrap=True)
    more = "`perfsweep describe NAME` shows one; `perfsweep new my_workload` writes one of your own"
    console.print(more, soft_wrap=True)
    return DONE


def describe(workload: str) -> int:
    """Print a workload's configuration and toggles: levels, parity class, needs, what cannot act here."""
    console, started = console_here(), time.monotonic()
    outside = external_workload.read(workload)
    with console.status(Text(f"importing {workload}")) if console.is_terminal else nullcontext():
        cls = registry.declared(outside.name)
        devices = executor_choice.devices_in_reach(environment.device_facts())
    outside = outside.read_as(cls)
    own = text_keys(outside.workload)
    if outside.asked:  # what it is depends on what the file says
        cls = cls.configured(workload_config(cls, own))
    sweeps = ", ".join(names.sweeps(workload))
    console.print(bold(workload, f": unit {cls.unit}, {cls.shape}-shaped; sweeps: {sweeps}"))
    if purpose := _purpose(cls):
        console.print(purpose)
    console.print(f"workload.FIELD=VALUE: {', '.join(_fields(cls, dict(own)))}")
    _show_toggles(console, cls.toggles, devices)
    for claim in cls.claims:
        console.print(f"claim ({claim.source}, {claim.section}): {claim.text}")
    took = units.duration((time.monotonic() - started) * 1e9)
    console.print(f"read in {took}, most of it for importing {cls.__module__}", style="dim")
    return DONE


def _purpose(cls: type[Declaration]) -> str:
    """What a workload computes, for whom and what one gains: the first two paragraphs of its docstring."""
    own = (base.__doc__ for base in cls.__mro__ if base.__module__ not in _GENERAL and base.__doc__)
    paragraphs = inspect.cleandoc(next(own, "")).split("\n\n")[:2]
    return " ".join(" ".join(paragraphs).split())


def _fields(cls: type[Declaration], own: dict[str, Any]) -> list[str]:
    """The fields of a workload's configuration with what they are unless said otherwise."""
    fields = []
    for field in dataclasses.fields(cls.Config):
        value = own.get(field.name, default_of(field))
        fields.append(field.name if value is dataclasses.MISSING else f"{field.name}={value}")
    return fields


def _show_toggles(console: Console, toggles: tuple[Toggle, ...], devices: Sequence[Device]) -> None:
    """Print a row for each level; its words stay whole, however narrow the terminal is."""
    from perfsweep.pipelines.report.tables import table_of  # `list` needs nothing of what comes with it
    from perfsweep.pipelines.report.terminal_table import print_table

    headings = ("toggle", "level", "parity", "what it does, what it needs, why it cannot act here")
    print_table(console, table_of("toggles", headings, _levels(toggles, devices)))


def _levels(toggles: tuple[Toggle, ...], devices: Sequence[Device]) -> Iterator[tuple[str, ...]]:
    """Rows of cells: a toggle's name, then each of its levels."""
    for toggle in toggles:
        for number, level in enumerate(toggle.levels):
            shown = f"{level.value} (baseline)" if number == 0 else str(level.value)
            remarks = [toggle.doc] if number == 0 else [*_needs(level), *_refusal(level, devices)]
            yield "" if number else toggle.name, shown, level.parity.value, "; ".join(remarks)
        if toggle.numbers:
            yield "", "a number", toggle.numbers.like.parity.value, str(toggle.numbers)


def _refusal(level: Level, devices: Sequence[Device]) -> list[str]:
    """Why a level cannot act on this machine, and whether it may on what jobs get."""
    here, *elsewhere = (level.unsupported(device) for device in devices)
    if here is None:
        return []
    return [f"{here}; where jobs run it may act" if None in elsewhere else here]


def _needs(level: Level) -> list[str]:
    """Requirements and conflicts of a level as phrases."""

    def choices(levels: Choices) -> list[str]:
        return [f"{other}={'|'.join(map(str, values))}" for other, values in levels.items()]

    phrases = [f"needs {choice}" for choice in choices(level.requires)]
    phrases += [f"needs {' or '.join(choices(level.requires_any))}"] if level.requires_any else []
    return phrases + [f"not with {choice}" for choice in choices(level.conflicts)]
