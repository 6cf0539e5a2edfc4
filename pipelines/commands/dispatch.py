"""What runs an entry of the list of commands, imported only then: help, TAB and mistakes answer at once.

What ``perfsweep COMMAND --help`` prints of options is written from their declarations.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, is_dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any

import click

from perfsweep.fields import choices_of, default_of, range_of
from perfsweep.pipelines.commands.arguments import OVERRIDE, words
from perfsweep.pipelines.config import composition, names, pasted_line, spelling
from perfsweep.pipelines.config.types import REQUIRED
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError, did_you_mean

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

HYDRA_FLAGS = """--cfg job shows the configuration and runs nothing, --info defaults where it comes from."""


class Plain(click.Command):
    """A command with all its arguments typed; `target` is ``module:function`` of this package."""

    def __init__(self, name: str, summary: str, target: str, *params: click.Parameter, **rest: Any) -> None:
        sentence = f"{summary[0].upper()}{summary[1:]}."
        settings = {"context_settings": SETTINGS, **rest}
        super().__init__(name, params=list(params), short_help=summary, help=sentence, **settings)
        self.target = target

    def function(self, target: str | None = None) -> Callable[..., int]:
        """Import what the command does."""
        module, _, name = (target or self.target).partition(":")
        return getattr(import_module(f"perfsweep.pipelines.commands.{module}"), name)

    def invoke(self, ctx: click.Context) -> int:
        """Call the function with the arguments that were parsed."""
        return self.function()(**ctx.params)


class Composed(Plain):
    """A command whose configuration Hydra composes.

    With one of its own options, or a folder as its first word, it is about what lies in that folder: then
    nothing is composed, and `of_folder` is called with the words and the options. Where its first word names
    a workload, `of_workload` gets that and the others. Where none is named, `nameless` is called in the place
    of `target`.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        target: str,
        *params: click.Parameter,
        example: str,
        of_folder: str | None = None,
        of_workload: str | None = None,
        nameless: str | None = None,
    ) -> None:
        sentence = "GROUP=NAME and FIELD=VALUE, in any order."
        overrides = words(
            "overrides", OVERRIDE, sentence, metavar="[WORKLOAD] " * bool(of_workload) + "[KEY=VALUE]..."
        )
        settings = {**SETTINGS, "ignore_unknown_options": True}
        super().__init__(
            name, summary, target, overrides, *params, context_settings=settings, epilog=HYDRA_FLAGS
        )
        self.example, self.of_folder, self.of_workload, self.nameless = (
            example,
            of_folder,
            of_workload,
            nameless,
        )

    def function(self, target: str | None = None) -> Callable[..., int]:
        """Import what the command does.

        Raises
        ------
        ConfigError
            The machine lacks what measuring needs.
        """
        refuse_machine()
        return super().function(target)

    def is_composed(self, overrides: tuple[str, ...], **options: Any) -> bool:
        """Tell whether Hydra composes this call."""
        folder = any(
            "=" not in text and not text.startswith("-") and not names.is_workload(text)
            for text in overrides[:1]
        )
        return not self.of_folder or not (folder or any(options.values()))

    def invoke(self, ctx: click.Context) -> int:
        """Compose, and only then import what the command does; options of Hydra's are left to Hydra."""
        name, overrides = str(self.name), ctx.params["overrides"]
        first, *values = overrides or ("",)
        if self.of_workload and names.is_workload(first):
            return self.function(self.of_workload)(first, values)
        if not self.is_composed(**ctx.params):
            return self.function(self.of_folder)(**ctx.params)
        if any(text.startswith("-") for text in overrides):
            return composition.run_hydra(name, overrides, lambda cfg: self.function()(cfg))
        cfg = composition.compose(name, overrides)
        registry.refuse_first(cfg.get("workload") or {})
        named = self.nameless is None or names.names_workload(name, spelling.read(name, overrides))
        return self.function(None if named else self.nameless)(cfg)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show an example, the options of the configuration, and how Hydra's own are found."""
        with formatter.section("Example"):
            formatter.write_text(f"perfsweep {self.name} {self.example}")
        formatter.write(f"\n{help_text(str(self.name))}")
        super().format_epilog(ctx, formatter)


class ComposedOrScript(Composed):
    """The same, or about a training script: ``train.py KEY=VALUE... -- ARGS``, or any line that starts one.

    `of_script` is called with the line, the overrides, and the command's own options, which belong to
    scripts alone.
    """

    def __init__(
        self, name: str, summary: str, target: str, *params: click.Parameter, of_script: str, **rest: Any
    ) -> None:
        super().__init__(name, summary, target, *params, **rest)
        self.of_script = of_script
        self.params[0].metavar = "[SCRIPT.py] [KEY=VALUE]... [-- ARGS]"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep apart what comes after ``--``: it is the script's, or the line that starts it."""
        at = args.index("--") if "--" in args else len(args)
        left, after = super().parse_args(ctx, args[:at]), args[at + 1 :]
        overrides, line = pasted_line.split(ctx.params["overrides"], names.is_workload)
        if not line and any(word.startswith("workload=") for word in overrides):
            overrides, after = [*overrides, *after], []
        ctx.params |= {"overrides": tuple(overrides), "line": line, "after": after}
        return left

    def is_composed(
        self, overrides: tuple[str, ...], line: Sequence[str] = (), after: Sequence[str] = (), **options: Any
    ) -> bool:
        """Tell whether Hydra composes this call: no script is named."""
        return not (line or after)

    def invoke(self, ctx: click.Context) -> int:
        """Call what is about a script where one is named.

        Raises
        ------
        ConfigError
            An option is about a script and none is named, or an argument of the script is not after ``--``.
        """
        overrides, words, after = (ctx.params.pop(name) for name in ("overrides", "line", "after"))
        if not (words or after):
            if any(ctx.params.values()):
                raise ConfigError(f"{self.name}: these options are about a script; name it, as train.py")
            ctx.params = {"overrides": overrides}
            return super().invoke(ctx)
        line = pasted_line.read(words or after)
        if words:
            overrides, line = (*overrides, *line.args), replace(line, args=tuple(after))
        if strange := [word for word in overrides if word.startswith("-")]:
            raise ConfigError(
                f"{strange[0]} is no option of {self.name}. Put arguments of the script after --:"
                f" perfsweep {self.name} {line.path} -- {strange[0]}"
            )
        os.environ.update(line.variables)
        return self.function(self.of_script)(line, overrides, **ctx.params)


class Commands(click.Group):
    """The list, in the order in which a newcomer meets the commands.

    `sections` has the names of commands by what you do with them; the rest is shown under "Commands".
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.sections = sections or {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the commands by section, aligned over all of them."""
        shown = {name: command for name, command in self.commands.items() if not command.hidden}
        grouped = {name for members in self.sections.values() for name in members}
        rest = [name for name in shown if name not in grouped]
        width = max(map(len, shown), default=0)
        for heading, members in {**self.sections, "Commands": rest}.items():
            if members:
                with formatter.section(heading):
                    formatter.write_dl(
                        [(name.ljust(width), shown[name].get_short_help_str(110)) for name in members]
                    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the list."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names; a line that starts a script is looked at.

        Raises
        ------
        ConfigError
            There is none.
        """
        if args[0] not in self.commands and pasted_line.starts_a_script(args):
            args = ["script", "--", *args]
        elif args[0] not in self.commands and not ctx.resilient_parsing:
            known = [name for name, command in self.commands.items() if not command.hidden]
            hint = did_you_mean(args[0], known)
            raise ConfigError(f"{args[0]} is no command; {hint}choose from: {', '.join(known)}")
        return super().resolve_command(ctx, args)


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


@cache
def refuse_machine() -> None:
    """Try whether there is room for processes and files: without it libraries hang, crash or interrupt us.

    A sweep has 17 processes and threads on two cores; two libraries start a thread for each core.

    Raises
    ------
    ConfigError
        There is less, or no folder for temporary files.
    """
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise ConfigError(f"TMPDIR: {error.strerror}. Set it to a folder that you can write") from error
    needed, over = 16 + 2 * len(os.sched_getaffinity(0)), threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(needed):
            thread = threading.Thread(target=over.wait)
            thread.start()
            started.append(thread)
    except RuntimeError as error:  # "can't start new thread"
        raise ConfigError(
            f"ulimit -u: {len(started)} more processes and threads can be started here, and perfsweep needs"
            f" {needed}. Raise that limit, in a container --pids-limit"
        ) from error
    finally:
        over.set()
        for thread in started:
            thread.join()


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the version and end, where it was asked for."""
    if value:
        click.echo(f"perfsweep {version('perfsweep')}")
        ctx.exit()


def of_the_system(error: OSError, command: click.Command | None) -> str:
    """What the system refuses, such as to write on a full disk, and where else this command can write."""
    options = {name: one for one in command.params for name in one.opts} if command else {}
    output = [f"--output {options['--output'].metavar}"] if "--output" in options else []
    places = " or ".join(["runs=PATH"] * isinstance(command, Composed) + output + ["TMPDIR"])
    where = f"{error.filename}: " if error.filename else ""
    remedy = {
        errno.ENOSPC: f"the disk is full; free some space, or write elsewhere with {places}",
        errno.EDQUOT: f"your quota is used up; free some space, or write elsewhere with {places}",
        errno.EFBIG: "a file may not grow further (ulimit -f); raise the limit",
        errno.EROFS: f"nothing can be written there; write elsewhere with {places}",
    }.get(error.errno or 0, error.strerror or str(error))
    return f"{where}{remedy}; nothing measured is lost"
