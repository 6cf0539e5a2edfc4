"""The line with which a user starts a training, read as what `workload=script` is told of it.

Knows ``python train.py``, ``python -m package.train``, console scripts, and launchers: torchrun, accelerate
and deepspeed. Reads words and files alone, so that neither torch nor Hydra is imported.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfsweep.workloads.errors import ConfigError

_CAPITALS = re.compile(r"[A-Z_][A-Z0-9_]*=.*", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_PYTHON = re.compile(r"(python|pypy)(\d+(\.\d+)?)?")
_RUNNERS = {"uv": "run", "poetry": "run", "pipenv": "run", "accelerate": "launch"}
_MODULE = ("-m", "--module")
_BEFORE = ("env", "time", "nohup", "exec")
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
_LAUNCHING_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_OF_PYTHON_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_PROCESSES = ("nproc_per_node", "num_processes", "num_gpus")
_OF_ACCELERATE = {"mixed_precision": "ACCELERATE_MIXED_PRECISION"}


@dataclass(frozen=True)
class PastedLine:
    """What a line starts.

    Attributes
    ----------
    path : of the script's file
    args : its arguments
    module : its dotted name, where it is started by this
    ranks : processes that a launcher starts; None without a launcher
    variables : that the line, or its launcher, sets
    """

    path: str
    args: tuple[str, ...] = ()
    module: str = ""
    ranks: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def starts_a_script(words: Sequence[str]) -> bool:
    """Whether words look like such a line, and not like a command of perfsweep's."""
    rest = [word for word in words if not _VARIABLE.fullmatch(word)]
    head = Path(rest[0]).name if rest else ""
    if head in _MODULE:
        return len(rest) > 1 and "=" not in rest[1]
    known = (*_BEFORE, *_LAUNCHERS, *_RUNNERS)
    return head.endswith(".py") or bool(_PYTHON.fullmatch(head)) or head in known


def split(words: Sequence[str], is_other: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """Options of a command, and the line after them that starts a script, which is empty where none does.

    Parameters
    ----------
    is_other : whether a word means something else, though there may be a file or program of this name
    """
    at = next((at for at, word in enumerate(words) if _begins(word, words[at:], is_other)), None)
    if at is None:
        return [*words], []
    variables = [word for word in words[:at] if _CAPITALS.fullmatch(word)]
    return [word for word in words[:at] if word not in variables], [*variables, *words[at:]]


def _begins(word: str, words: Sequence[str], is_other: Callable[[str], bool]) -> bool:
    if "=" in word or is_other(word):
        return False
    plain = not word.startswith("-") and not Path(word).suffix
    return starts_a_script(words) or (plain and bool(Path(word).is_file() or shutil.which(word)))


def read(words: Sequence[str]) -> PastedLine:
    """Read a line, word by word as a shell would pass it.

    Raises
    ------
    ConfigError
        It starts no script that is a file.
    """
    variables, rest = dict[str, str](), [*words]
    while rest and (_VARIABLE.fullmatch(rest[0]) or Path(rest[0]).name in _BEFORE):
        name, equals, value = rest.pop(0).partition("=")
        variables |= {name: value} if equals else {}
    while len(rest) > 1 and _RUNNERS.get(rest[0]) == rest[1] and rest[0] not in _LAUNCHERS:
        rest = rest[2:]
    head = Path(rest[0]).name if rest else ""
    if head in _MODULE:
        return _of_python(["-m", *rest[1:]], variables)
    if _PYTHON.fullmatch(head):
        return _of_python(rest[1:], variables)
    if head in _LAUNCHERS:
        return _launched(rest[1:], variables)
    return _of_file(rest, variables)


def _of_file(words: Sequence[str], variables: Mapping[str, str]) -> PastedLine:
    """A script by its file, or the console script of an installed package."""
    path, args = (words[0] if words else ""), tuple(words[1:])
    if "/" not in path and not Path(path).is_file() and (found := shutil.which(path)):
        path = found
    return PastedLine(path, args[1:] if args[:1] == ("--",) else args, variables=variables)


def _of_python(words: Sequence[str], variables: Mapping[str, str]) -> PastedLine:
    rest = [*words]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        flags, is_module, name = option.partition("m")
        if is_module and not option.startswith("--") and flags not in _OF_PYTHON_WITH_VALUE:
            return _of_module(name or _next(rest, option), rest, variables)
        if option in ("-c", "-"):
            raise ConfigError(f"python {option} starts no script that is a file; name one, such as train.py")
        if option in _OF_PYTHON_WITH_VALUE:
            _next(rest, option)
    return PastedLine(_next(rest, "python"), tuple(rest), variables=variables)


def _next(rest: list[str], option: str) -> str:
    if not rest:
        raise ConfigError(f"{option}: nothing follows it; name the script, such as train.py")
    return rest.pop(0)


def _of_module(name: str, args: Sequence[str], variables: Mapping[str, str]) -> PastedLine:
    if name in _LAUNCHING_MODULES:
        return _launched(args, variables)
    return PastedLine(_file_of(name), tuple(args), name, variables=variables)


def _file_of(module: str) -> str:
    """The file of a module, in the current folder or in one of the usual ones below it."""
    inner = Path(*module.split("."))
    for file in (inner.with_suffix(".py"), inner / "__main__.py"):
        for top in (Path(), Path("src")):
            if (top / file).is_file():
                return str(top / file)
    raise ConfigError(
        f"-m {module}: there is neither {inner}.py nor {inner}/__main__.py in the current folder; start the"
        " command where they are"
    )


def _launched(words: Sequence[str], variables: Mapping[str, str]) -> PastedLine:
    """What a launcher starts: the first word that is a script, whatever options are before it."""
    options, rest = list[str](), [*words]
    while rest and not rest[0].endswith(".py") and rest[0] not in _MODULE:
        options.append(rest.pop(0))
    if not rest:
        raise ConfigError(f"{' '.join(words)}: the launcher starts no script that ends in .py")
    asked = dict(_asked(options))
    ranks = next((_number(name, asked[name]) for name in _PROCESSES if name in asked), None)
    set_too = {variable: asked[name] for name, variable in _OF_ACCELERATE.items() if name in asked}
    word = rest.pop(0)
    path, module = (word, "") if word.endswith(".py") else ("", _next(rest, word))
    started = PastedLine(path, tuple(rest)) if path else _of_module(module, rest, {})
    nodes = _number("nnodes", asked.get("nnodes", "1"))
    world = None if ranks is None and "nnodes" not in asked else nodes * (ranks or 1)
    return PastedLine(started.path, started.args, module, world, {**variables, **set_too})


def _asked(options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options of a launcher with their values, with underscores in their names."""
    for word, following in zip(options, [*options[1:], ""], strict=False):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-"):
            yield name.replace("-", "_"), value if equals else following


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise ConfigError(f"--{name}={value}: give a number, as each trial has as many processes")
    return int(value)
