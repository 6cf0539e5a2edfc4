"""Completion of the command line: what may stand where the cursor is. Imports neither torch nor Hydra.

``perfsweep completion bash`` prints the lines for a shell; they ask ``perfsweep completion query`` at each
TAB. Toggles and levels are not completed: knowing them means importing the workload, and with it torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path

from workloads.errors import ConfigError

GROUPS = {
    "run": ("workload", "toggles", "measure"),
    "profile": ("workload", "measure", "tracking"),
    "sweep": ("workload", "sweep", "toggles", "measure", "tracking", "cluster"),
    "tune": ("workload", "tune", "toggles", "measure", "tracking", "cluster"),
    "frontier": ("workload", "toggles", "measure", "tracking", "cluster"),
    "doctor": ("cluster",),
}
"""Groups of configuration files that a composed command chooses from."""

FOLDERS = ("status", "wait", "logs", "cancel", "compare", "publish", "dashboard")
"""Commands that take the folder of a sweep."""

WORKLOADS = ("describe", "claims", "check")

_BASH = """_perfsweep() {
    local IFS=$'\\n'
    COMPREPLY=($(perfsweep completion query "${COMP_LINE:0:$COMP_POINT}" 2>/dev/null))
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
    found=("${(@f)$(perfsweep completion query "$LBUFFER" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -S '' -- "${found[@]}"
}
compdef _perfsweep perfsweep
"""
_FISH = """complete -c perfsweep -f -a '(perfsweep completion query (commandline -cp))'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


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


def candidates(line: str, commands: Sequence[str]) -> list[str]:
    """Words that the last word of `line` may become; `line` is what was typed up to the cursor."""
    words = line.split()
    last = "" if line.endswith(" ") or not words else words[-1]
    before = words[1:] if not last else words[1:-1]
    if not before:
        found: Iterable[str] = commands
    elif before[0] == "profile":
        found = [*_overrides("profile", before[1:], last), *(_sweeps(last) if "=" not in last else ())]
    elif before[0] in GROUPS:
        found = _overrides(before[0], before[1:], last)
    elif before[0] in FOLDERS:
        found = _sweeps(last)
    elif before[0] in WORKLOADS:
        found = _workloads()
    else:
        found = SHELLS if before[0] == "completion" else ()
    return sorted(word for word in dict.fromkeys(found) if word.startswith(last))


def _overrides(command: str, before: Sequence[str], last: str) -> list[str]:
    group, equals, _ = last.partition("=")
    if not equals:
        return [f"{name}=" for name in GROUPS[command]]
    if group not in GROUPS[command]:
        return []
    workload = next((word.partition("=")[2] for word in before if word.startswith("workload=")), "digits")
    names = {"workload": _workloads, "sweep": lambda: _named_sweeps(workload)}.get(
        group, lambda: _configs(group)
    )()
    return [f"{group}={name}" for name in names]


def _configs(group: str) -> list[str]:
    """Configurations of a group: perfsweep's own, and those of the folder that perfsweep.yaml names."""
    from pipelines.config import home

    own = home.conf_folder()
    places = [files("conf").joinpath(group), *([own / group] if own and (own / group).is_dir() else [])]
    return [
        entry.name.removesuffix(".yaml")
        for place in places
        for entry in place.iterdir()
        if entry.name.endswith(".yaml")
    ]


def _named_sweeps(workload: str) -> list[str]:
    from pipelines.config import external_workload

    own = files("conf").joinpath("sweep", workload)
    found = [entry.name.removesuffix(".yaml") for entry in own.iterdir()] if own.is_dir() else []
    return [*found, *external_workload.read(workload).sweeps, *_configs("sweep")]


def _workloads() -> list[str]:
    """Built in, by entry point, and the workloads in the current folder's modules that lie beside a YAML."""
    named = _configs("workload")
    registered = [point.name for point in entry_points(group="perfsweep.workloads")]
    here = [file for file in sorted(Path().glob("*.py")) if file.with_suffix(".yaml").is_file()]
    return [*named, *registered, *(f"{file.stem}:{name}" for file in here for name in _classes(file))]


def _classes(file: Path) -> list[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # half written: nothing to complete yet
        return []
    found = []
    for node in tree.body:
        methods = (
            {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            if isinstance(node, ast.ClassDef)
            else set()
        )
        found += [node.name] if isinstance(node, ast.ClassDef) and methods & {"build", "step"} else []
    return found


def _sweeps(last: str) -> list[str]:
    """Folders of sweeps, under `runs` unless another folder has been typed."""
    root = Path(last).parent if "/" in last else Path("runs")
    return [str(path.parent) for path in sorted(root.glob("*/manifest.jsonl"))]
