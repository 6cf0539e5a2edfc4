"""Kinds of arguments: what is legal, what TAB offers, and which mistakes show before heavy imports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from perfsweep.fields import MOST_NUMBER
from perfsweep.pipelines.config import names
from perfsweep.pipelines.store.options import MOST_WAIT_S
from perfsweep.workloads.errors import ConfigError

Offer = Callable[[click.Context, str], Iterable[str]]
"""Words that complete what was typed so far; words that begin otherwise are dropped."""


class Kind(click.ParamType[str]):
    """What an argument is, with what is offered for it and which check runs at once."""

    name = "text"

    def __init__(self, offer: Offer, check: Callable[[str], object] = lambda value: None) -> None:
        self._offer, self._check = offer, check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take the word as it is; raises what the check raises."""
        self._check(value)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Offer the words that begin with what was typed."""
        offered = dict.fromkeys(self._offer(ctx, incomplete))
        return [CompletionItem(word) for word in sorted(offered) if word.startswith(incomplete)]


class Number(click.ParamType[float]):
    """A number between two bounds, the lower one included where it is zero."""

    name = "number"

    def __init__(self, low: float, high: float, meaning: str) -> None:
        self._low, self._high, self._meaning = low, high, meaning

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Turn the text into a number; a usage error where it is none, or beyond the bounds."""
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not self._low <= number < self._high:
            self.fail(f"{value} is no {self._meaning}", param, ctx)
        return number


def _sweep_folders(ctx: click.Context, typed: str) -> list[str]:
    """Folders of sweeps, under `runs` unless another folder has been typed."""
    root = typed[: typed.rindex("/") + 1] if "/" in typed else "runs/"
    return [f"{root}{path.parent.name}" for path in sorted(Path(root).glob("*/manifest.jsonl"))]


def _files(ctx: click.Context, typed: str) -> list[str]:
    """Files and folders that begin as what was typed."""
    parent, start = typed.rpartition("/")[:2]
    there = Path(f"{parent}{start}" or ".")
    if not there.is_dir():
        return []
    return [f"{parent}{start}{path.name}{'/' * path.is_dir()}" for path in there.iterdir()]


def _measured(ctx: click.Context, typed: str) -> list[str]:
    """Sweeps, stored baselines, and folders that may hold either."""
    sweeps = _sweep_folders(ctx, typed)
    rest = [name for name in _files(ctx, typed) if name.endswith((".json", "/"))]
    return [*sweeps, *(name for name in rest if name.rstrip("/") not in sweeps)]


def _overrides(ctx: click.Context, typed: str) -> list[str]:
    """Configuration groups and the names in the one typed; folders too where the command reads sweeps."""
    command = str(ctx.info_name)
    group, equals, _ = typed.partition("=")
    if not equals:
        folders = _sweep_folders(ctx, typed) if command == "profile" else []
        return [*(f"{name}=" for name in names.groups(command)), *folders]
    if group not in names.groups(command):
        return []
    workload = names.workload_of(list(ctx.params.get("overrides") or ()))
    return [f"{group}={name}" for name in names.choices(group, workload)]


SWEEP_FOLDER = Kind(_sweep_folders)
FILE = Kind(_files)
MEASURED = Kind(_measured)
WORKLOAD = Kind(lambda ctx, typed: names.workloads(), names.refuse_unknown_workload)
OVERRIDE = Kind(_overrides)

_BASH = """_perfsweep() {
    local IFS=$'\\n'
    COMPREPLY=($(perfsweep complete-line "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null))
    local word="${COMP_LINE:0:$COMP_POINT}"; word="${word##* }"
    # bash splits words at = and :, and replaces only the last piece
    if [[ "$word" == *[=:]* ]]; then
        local head="${word%"${word##*[=:]}"}"; COMPREPLY=("${COMPREPLY[@]#"$head"}")
    fi
    [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[=/] ]] && compopt -o nospace
}
complete -o default -F _perfsweep perfsweep
"""
_ZSH = """(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u }
_perfsweep() {
    local -a found
    found=("${(@f)$(perfsweep complete-line "$LBUFFER" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -S '' -- "${found[@]}"
}
compdef _perfsweep perfsweep
"""
_FISH = """complete -c perfsweep -f -a '(perfsweep complete-line (commandline -cp))'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Lines that ask click at every TAB. They are not its own: bash splits words at ``=`` and ``:``, and
overrides and workloads hold both."""


def script(shell: str) -> str:
    """The lines that switch completion on.

    Raises
    ------
    ConfigError
        The shell is not known.
    """
    if shell not in SHELLS:
        raise ConfigError(f"{shell} is no shell with completion; choose from: {', '.join(SHELLS)}")
    return SHELLS[shell]


def completion(shell: str) -> int:
    """Print the lines that switch completion on."""
    print(script(shell), end="")
    return 0


def complete_line(line: str) -> int:
    """Print what the end of a line may become, one word a line."""
    commands = click.get_current_context().find_root().command
    assert isinstance(commands, click.Group)
    print("\n".join(candidates(commands, line)))
    return 0


def candidates(commands: click.Group, line: str) -> list[str]:
    """Words that the last word of `line` may become; `line` is what was typed up to the cursor.

    Toggles and levels are not completed: knowing them means importing the workload, and with it torch.
    """
    words = split_arg_string(line)
    last = "" if line.endswith(" ") or not words else words.pop()
    if words[1:] and words[1] not in commands.commands:
        return []
    option = last.partition("=")[0] if last.startswith("--") and "=" in last else ""
    before, typed = ([*words[1:], option], last.partition("=")[2]) if option else (words[1:], last)
    offered = ShellComplete(commands, {}, "perfsweep", "").get_completions(before, typed)
    return [f"{option}={item.value}" if option else item.value for item in offered]


SHELL = Kind(lambda ctx, typed: SHELLS)
NAME = Kind(lambda ctx, typed: ())
A_VERSION = Kind(lambda ctx, typed: ("HEAD", "main", "worktree", "workload="))
SHARE = Number(0, 10, "share such as 0.05")
COUNT = Number(1e-9, MOST_NUMBER, f"positive number below {MOST_NUMBER:,}")
SECONDS = Number(1e-9, MOST_WAIT_S, f"positive number of seconds below {MOST_WAIT_S:,.0f}")


def word(name: str, kind: Kind | click.Choice[str], text: str, **rest: Any) -> click.Argument:
    """An argument by position."""
    return click.Argument([name], type=kind, help=text, **rest)


def words(name: str, kind: Kind, text: str, **rest: Any) -> click.Argument:
    """All further arguments by position."""
    return click.Argument([name], type=kind, help=text, nargs=-1, **rest)


def option(names: Sequence[str] | str, text: str, **rest: Any) -> click.Option:
    """An option, with its default in the help where it has one."""
    given = [names] if isinstance(names, str) else list(names)
    return click.Option(given, help=text, show_default="default" in rest and not rest.get("is_flag"), **rest)


SWEEP = word("sweep", SWEEP_FOLDER, "Folder of a sweep, such as runs/digits-demo.")
PACKS = words("packs", NAME, "Packs, such as p000; all by default.")
TRUST = option("--trust", "Import the sweep's workload from here, which its claims need.", is_flag=True)
JSON = option(["as_json", "--json"], "Print a JSON object; docs/json.md says which.", is_flag=True)
