"""What a script consists of: its own text, and that of the modules it imports from outside site-packages."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from perfsweep.workloads import snapshot
from perfsweep.workloads.errors import ConfigError, did_you_mean
from perfsweep.workloads.imports import OURS, PACKAGE, folder_of, followed
from perfsweep.workloads.script.config import AUTOMATIC, MARKS, OPTIMIZER, ScriptConfig
from perfsweep.workloads.snapshot import Snapshot

_EXPLICIT = re.compile(r"^\s*(import|from)\s+perfsweep\b", re.MULTILINE)
_BEFORE_TORCH = re.compile(
    r"""
      \benvironb?\s*(?: \[[^\]\n]*\]\s*=(?!=) | \|= | \.(?:update|setdefault|pop|popitem|clear)\b )
    | \bdel\s+(?:os\.)?environ\b
    | =\s*os\.environ\s*(?:\#.*)?$       # another name for it, through which anything may be set
    | \b(?:putenv|unsetenv|load_dotenv|set_start_method)\b
    """,
    re.VERBOSE | re.MULTILINE,
)
_IMPORT_PATH = re.compile(r"\bsys\.path\b")
_ADDED = re.compile(r"\bsys\.path\.\w+\(([^\n]*)")
_QUOTED = re.compile(r"['\"]([^'\"\n]+)['\"]")


class Sources:
    """The files of a script, read without running it.

    Attributes
    ----------
    script : the script, where it lies, or lay when the copies were made
    originals : all files that it consists of
    files : the ones that are read: copies where trials are to run these
    """

    def __init__(self, config: ScriptConfig) -> None:
        """Find the script and what it imports.

        Raises
        ------
        ConfigError
            There is no such script, or it is not Python.
        """
        copies = snapshot.current()
        self.script = script_file(config)
        folder = Path(config.folder or Path.cwd())
        depth = len(config.module.split(".")) if config.module else 0
        up = depth - (self.script.stem != "__main__") if depth else 0  # from its folder to its root's
        if copies is None or self.script not in copies.copies:
            self.originals = self.files = _followed(self.script, folder, up)
        elif copies.is_version:
            originals = {copy.resolve(): original for original, copy in copies.copies.items()}
            self.files = _followed(copies.copy_of(self.script), copies.folder(folder), up, copies)
            self.originals = tuple(originals.get(file, file) for file in self.files)
        else:
            self.files = tuple(copies.copies.values())
            self.originals = tuple(copies.copies)
        if copies is None:
            refuse_no_python(self.script, self.script.read_bytes())
        self._texts = [file.read_text(errors="replace") for file in self.files]

    def iteration(self, wanted: str) -> str:
        """What ends an iteration where `wanted` leaves it open: the script's own marks if it has any."""
        if wanted != AUTOMATIC:
            return wanted
        return MARKS if self.mention(_EXPLICIT) else OPTIMIZER

    @property
    def touches_environment(self) -> bool:
        """Whether it may set what a process must know before torch is imported."""
        return self.mention(_BEFORE_TORCH)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file, by its path."""
        both = zip(self.originals, self.files, strict=True)
        return {str(place): hashlib.sha256(file.read_bytes()).hexdigest() for place, file in both}

    def mention(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern occurs in any of the files."""
        return any(pattern.search(text) for text in self._texts)

    def lines(self, pattern: re.Pattern[str]) -> list[str]:
        """Each line in which a pattern occurs, as ``file:line: text``."""
        return [
            f"{file.name}:{number}: {line.strip()}"
            for file, text in zip(self.originals, self._texts, strict=True)
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]


def script_file(config: ScriptConfig) -> Path:
    """The script, as an absolute path.

    Raises
    ------
    ConfigError
        None is named, or it is not there, or no Python, or imports something else as perfsweep.
    """
    if not config.path:
        raise ConfigError("workload.path is missing: name the script, such as workload.path=train.py")
    place = Path(config.folder or Path.cwd(), config.path)
    problem = _problem(place)
    file = place if problem else place.resolve()
    copies = snapshot.current()
    if problem and not (copies and (file := file.resolve()) in copies.copies):
        raise ConfigError(f"workload.path={config.path[:300]}: {problem}")
    for place in (file.with_name(PACKAGE), file.with_name(f"{PACKAGE}.py")):
        if place.is_file() or any(place.glob("*.py")):
            raise ConfigError(
                f"workload.path={config.path}: {place} has the name of perfsweep, and the script would import"
                " the one in the place of the other; rename it"
            )
    if file.suffix != ".py" and not _is_console_script(file):
        raise ConfigError(
            f"workload.path={config.path}: {file.name} is no Python script, whose name ends in .py; whole"
            " runs of any program are measured by workload=command"
        )
    return file


def refuse_first(values: Mapping[str, Any]) -> None:
    """Refuse a path that leads to no script, or one that Python cannot read, before torch is imported.

    Raises
    ------
    ConfigError
        It is so.
    """
    path, folder = values.get("path"), values.get("folder")
    if isinstance(path, str):  # other types are refused as those of all fields are
        file = script_file(ScriptConfig(path, folder=str(folder or "")))
        refuse_no_python(file, file.read_bytes())


def _problem(file: Path) -> str:
    """Why a path leads to no script; empty where a plain file is there."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:  # of a null byte
        known = getattr(error, "errno", None)
        if known in (errno.ENOENT, errno.ENOTDIR):
            return f"{file.resolve()} does not exist; {_others(file.resolve())}"
        return f"it leads nowhere: {getattr(error, 'strerror', None) or error}. Name a file that ends in .py"
    if stat.S_ISDIR(mode):
        return f"{file.resolve()} is a folder. Name the script in it; {_others(file.resolve() / file.name)}"
    if not stat.S_ISREG(mode):
        return f"{file} is a pipe or a device. Name a file that ends in .py"
    return "" if os.access(file, os.R_OK) else f"{file} may not be read. Give yourself the right to"


def refuse_no_python(file: Path, text: bytes) -> None:
    """Refuse a text that Python cannot read.

    Raises
    ------
    ConfigError
        It is no Python; the message names the file and, where it is known, the line.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python tells them as the script runs
            compile(text, str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        what = getattr(error, "msg", None) or str(error) or "it is nested too deeply"
        raise ConfigError(f"{file}{f' line {line}' if line else ''} is no Python: {what}") from error


def _is_console_script(file: Path) -> bool:
    """Whether a file without a suffix is Python, as the commands of installed packages are."""
    with file.open("rb") as opened:
        first = opened.readline(200)
    return first.startswith(b"#!") and b"python" in first


def _others(file: Path) -> str:
    """What else a path may have meant."""
    there = sorted(one.name for one in file.parent.glob("*.py")) if file.parent.is_dir() else []
    if not there:
        return "a path is relative to the current folder"
    return (
        did_you_mean(file.name, there) + f"there {'are' if len(there) > 1 else 'is'} {', '.join(there[:8])}"
    )


def _followed(script: Path, folder: Path, up: int = 0, version: Snapshot | None = None) -> tuple[Path, ...]:
    """The script with every module that it imports from outside site-packages, directly or through others."""
    added = tuple(_added_folders(script, folder))
    elsewhere = cache(partial(_elsewhere, added=added, version=version))
    return tuple(followed([script], {}, script.parents[up], elsewhere))


def _elsewhere(name: str, added: tuple[Path, ...], version: Snapshot | None) -> Path | None:
    """The folder of a top-level module that lies neither next to the script nor among installed packages."""
    for folder in added:
        if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
            return folder
    place = folder_of(name)
    return version.folder(place) if version and place else place


def _added_folders(script: Path, folder: Path) -> list[Path]:
    """Folders that a script may put on the import path: what its text shows, else the usual ones."""
    text = script.read_text(errors="replace")
    if not _IMPORT_PATH.search(text):
        return []
    here = script.parent
    named = [name for shown in _ADDED.findall(text) for name in _QUOTED.findall(shown)]
    places = [base / name for name in named for base in (folder, here, here.parent)]
    usual = [here.parent, here / "src", here.parent / "src"]
    found = dict.fromkeys(place.resolve() for place in (*places, *usual) if place.is_dir())
    return [place for place in found if not place.is_relative_to(OURS)]
