"""Write the options of a command from their declarations: what ``perfsweep COMMAND --help`` prints.

Imports neither Hydra nor torch: help answers at once.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from dataclasses import MISSING, Field, is_dataclass
from typing import Any

from perfsweep.fields import choices_of, default_of, range_of
from perfsweep.pipelines.config import names, spelling
from perfsweep.pipelines.config.types import REQUIRED

_LEFT, _WIDEST = 34, 110


def help_text(command: str) -> str:
    """Write the files that a command chooses from, and all its options, each with its default."""
    lines = ["Files to choose from:"]
    for group, choice in defaults_of_groups(command).items():
        others = [name for name in names.choices(group, names.DEFAULT_WORKLOAD) if name != choice]
        lines += _entry(f"{group}={choice}", ", ".join(others))
    lines += ["", "Options with their defaults:"]
    for name, declared in options(command).items():
        limits = ", ".join(choices_of(declared)) or range_of(declared)
        meaning = declared.metadata["description"] + (f" [{limits}]" if limits else "")
        default = defaults_of_groups(command).get(name, shown_default(declared))
        lines += _entry(f"{name}={default}", meaning)
    return "\n".join([*lines, ""])


def defaults_of_groups(command: str) -> dict[str, str]:
    """List the groups of a command with their default files; a sweep's name lacks its workload."""
    return {group: choice.rpartition("/")[2] for group, choice in names.groups(command).items()}


def options(command: str) -> dict[str, Field[Any]]:
    """List the options of a command by their full names; those outside groups come first."""
    every = {
        name: one for name, one in spelling.options(command).items() if not is_dataclass(default_of(one))
    }
    return dict(sorted(every.items(), key=lambda item: "." in item[0]))


def _entry(name: str, text: str) -> list[str]:
    """Put a name on the left and its wrapped text on the right, as wide as the terminal is."""
    width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
    lines = textwrap.wrap(text, max(width - _LEFT, 30)) or [""]
    head = f"  {name}"
    if len(head) >= _LEFT:
        return [head, *(" " * _LEFT + line for line in lines)]
    return [f"{head:{_LEFT}}{lines[0]}".rstrip(), *(" " * _LEFT + line for line in lines[1:])]


def shown_default(declared: Field[Any]) -> str:
    """Write the default of an option as the command line takes it; ``?`` where a value must be given."""
    value = default_of(declared)
    if value is MISSING or value == REQUIRED:
        return "?"
    return value if isinstance(value, str) else json.dumps(value)
