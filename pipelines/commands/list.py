"""`perfsweep list` and `perfsweep describe`: what there is to measure, and what can be switched."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from pipelines.config import external_workload
from pipelines.plan import plan
from pipelines.trial import environment
from workloads import registry
from workloads.api import Choices, Device, Level, Toggle, Workload


def list_names(console: Console) -> int:
    """Workloads, and the named sweeps of each."""
    for name, target in sorted(registry.names().items()):
        console.print(f"[bold]{name}[/]  ({target})", highlight=False)
        console.print(f"  sweeps: {', '.join(_sweeps(name))}", highlight=False)
    console.print(
        "your own: workload=package.module:Class, written by `perfsweep new my_workload`", highlight=False
    )
    return 0


def describe(console: Console, name: str) -> int:
    """Configuration and toggles of a workload with levels, parity class, requirements, and what does not act
    here."""
    own = external_workload.read(name)
    cls = registry.find(name)
    device = environment.device_facts()
    console.print(
        f"[bold]{name}[/]: unit {cls.unit}, {cls.shape}-shaped; sweeps: {', '.join(_sweeps(name))}",
        highlight=False,
    )
    console.print(f"workload.FIELD=VALUE: {', '.join(_fields(cls, dict(own.workload)))}", highlight=False)
    console.print(_toggles(cls.toggles, device))
    for claim in cls.claims:
        console.print(f"claim ({claim.source}, {claim.section}): {claim.text}", highlight=False)
    return 0


def _sweeps(name: str) -> list[str]:
    return list(dict.fromkeys([*external_workload.read(name).sweeps, *plan.named_sweeps(name)]))


def _fields(cls: type[Workload], own: dict[str, Any]) -> list[str]:
    """The fields of a workload's configuration with what they are unless said otherwise."""
    found = []
    for field in dataclasses.fields(cls.Config):
        default = (
            field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        )
        value = own.get(field.name, default)
        found.append(field.name if value is dataclasses.MISSING else f"{field.name}={value}")
    return found


def _toggles(toggles: tuple[Toggle, ...], device: Device) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("toggle", "level", "parity"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does, what it needs, why it cannot act here")
    for toggle in toggles:
        for number, level in enumerate(toggle.levels):
            shown = f"{level.value} (baseline)" if number == 0 else str(level.value)
            remarks = (
                [toggle.doc] if number == 0 else [*_needs(level), *filter(None, [level.unsupported(device)])]
            )
            table.add_row("" if number else toggle.name, shown, level.parity.value, "; ".join(remarks))
        if toggle.numbers:
            table.add_row("", "a number", toggle.numbers.like.parity.value, str(toggle.numbers))
    return table


def _needs(level: Level) -> list[str]:
    """Requirements and conflicts of a level as phrases."""

    def choices(levels: Choices) -> list[str]:
        return [f"{other}={'|'.join(map(str, values))}" for other, values in levels.items()]

    phrases = [f"needs {choice}" for choice in choices(level.requires)]
    phrases += [f"needs {' or '.join(choices(level.requires_any))}"] if level.requires_any else []
    return phrases + [f"not with {choice}" for choice in choices(level.conflicts)]
