"""Write the page of all options, ``docs/options.md``, from their declarations.

``PYTHONPATH=tests/support python -m options_page`` prints it.
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from importlib.resources import files
from typing import Any

from perfsweep.fields import choices_of, default_of, range_of
from perfsweep.pipelines.commands.dispatch import defaults_of_groups, options, shown_default
from perfsweep.pipelines.config import names
from perfsweep.pipelines.config.types import COMMANDS, ENTRIES

_INTRODUCTION = """# Options

Options of the commands that Hydra composes: {commands}. Each is given as `NAME=VALUE` after
the command, or is in a file of one of the groups below. `--help` after a command shows the options of this command,
`--cfg job` what a command line composes to, and `perfsweep describe ...` the fields and toggles of a workload. The
other commands take a few arguments, which their own `--help` shows.

This page is written by `PYTHONPATH=tests/support python -m options_page > docs/options.md`, from the declarations in
`pipelines/config/types.py`, `pipelines/store/options.py` and `slurm/site.py`.
"""  # noqa: E501


def page() -> str:
    """Write the page of all options in Markdown."""
    parts = [_INTRODUCTION.format(commands=", ".join(f"`{name}`" for name in COMMANDS)), _commands()]
    tables: dict[str, type[Any]] = {}
    for command in COMMANDS.values():
        tables |= {one.name: type(part) for one in fields(command) if is_dataclass(part := default_of(one))}
    for group, declared in tables.items():
        parts.append(f"## {group}\n\n{_summary(declared)}\n")
        parts.append("".join(f"- `{group}={name}`: {what}\n" for name, what in _files(group).items() if what))
        parts.append(_table(f"{group}.", declared))
    for option, declared in ENTRIES.items():
        parts.append(f"## Entries of {option}\n\n{_summary(declared)}\n")
        parts.append(_table("", declared))
    return "\n".join(part for part in parts if part)


def _commands() -> str:
    """Write the table of commands, and the table of the options that are in no group."""
    lines = ["## Commands", "", "| command | does | groups |", "|---|---|---|"]
    for command in COMMANDS:
        chosen = ", ".join(f"`{group}`" for group in names.groups(command))
        lines.append(f"| `{command}` | {_purpose(command)} | {chosen} |")
    lines += ["", "| option | value | default | commands | meaning |", "|---|---|---|---|---|"]
    plain = {name: one for command in COMMANDS for name, one in options(command).items() if "." not in name}
    for name, one in plain.items():
        having = ", ".join(f"`{command}`" for command in COMMANDS if name in options(command))
        file = defaults_of_groups("sweep").get(name)
        default = f"`{file}`" if file else _code(one)
        lines.append(f"| `{name}` | {_value(one)} | {default} | {having} | {one.metadata['description']} |")
    return "\n".join([*lines, ""])


def _table(prefix: str, declared: type[Any]) -> str:
    lines = ["| option | value | default | meaning |", "|---|---|---|---|"]
    for one in fields(declared):
        meaning = one.metadata["description"]
        lines.append(f"| `{prefix}{one.name}` | {_value(one)} | {_code(one)} | {meaning} |")
    return "\n".join([*lines, ""])


def _value(declared: Field[Any]) -> str:
    """Say what may be given: the choices, or the type and the range."""
    if choices := choices_of(declared):
        of_list = "list of " if str(declared.type).startswith("list") else ""
        return of_list + ", ".join(choices)
    plain = str(declared.type).replace(" | None", " or null").replace("Any", "any")
    return ", ".join(filter(None, [plain, range_of(declared)]))


def _code(declared: Field[Any]) -> str:
    value = shown_default(declared)
    return "required" if value == "?" else f"`{value}`"


def _purpose(command: str) -> str:
    """Read the sentence that the command's own file begins with."""
    first = files("perfsweep.conf").joinpath(f"{command}.yaml").read_text().partition("\n")[0]
    purpose = first.partition(": ")[2]
    return purpose[:1].upper() + purpose[1:]


def _summary(declared: type[Any]) -> str:
    return (declared.__doc__ or "").partition("\n")[0]


def _files(group: str) -> dict[str, str]:
    """List the files of a group of configurations, each with the comment it begins with."""
    folder = files("perfsweep.conf").joinpath(group)
    texts = {
        entry.name.removesuffix(".yaml"): entry.read_text()
        for entry in (sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else ())
        if entry.name.endswith(".yaml")
    }
    comments = {
        name: [line[2:] for line in text.splitlines() if line.startswith("# ") and "@package" not in line]
        for name, text in texts.items()
    }
    return {name: next(iter(lines), "") for name, lines in comments.items()}


if __name__ == "__main__":
    print(page(), end="")
