"""Environments as versions: the name that a user gives, and its interpreter; found, or built here.

Environments of locked packages are built once by uv or pip into a cache, which later sweeps take them from.
Such a one is named by a digest of all that was asked for, and of the Python that it is for. Its last file
says that it is whole: what a killed builder left has none, and is built again.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.locks import OTHER, holding
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.schema import Environment, Version
from perfsweep.pipelines.units import few
from perfsweep.workloads.errors import ConfigError

OLDEST_PYTHON = (3, 11)
"""What measures is written for it."""

FACTS_S = 60.0

# Runs in any Python that the user names, so it is as old as that may be; torch is looked for, not imported.
_FACTS = """
import json, sys
facts = {"version": list(sys.version_info[:3]), "prefix": sys.prefix}
if sys.version_info >= (3, 4):
    import sysconfig
    from importlib.util import find_spec
    facts["abi"] = sysconfig.get_config_var("SOABI") or ""
    facts["missing"] = [name for name in ("torch", "numpy") if find_spec(name) is None]
sys.stdout.write("\\n" + json.dumps(facts) + "\\n")
"""


def find(name: str, cache: Path) -> Environment:
    """Find the environment that a name means, and build that of a lock file where it is not there.

    Parameters
    ----------
    name : an interpreter, the folder of a virtual environment, or a file of locked packages
    cache : where environments of files are kept

    Raises
    ------
    ConfigError
        There is none, it cannot be built, or it cannot measure: wrong Python, no torch, no numpy.
    """
    path = Path(name).expanduser()
    if is_lock(path):
        interpreter = built(path, cache) / "bin" / "python"
    elif path.is_dir():
        interpreter = _inside(path, name)
    else:
        interpreter = _executable(path, name)
    # Not resolved: the link in a virtual environment is what leads to its packages.
    return _checked(_facts(interpreter.absolute(), name), interpreter.absolute(), name)


def _inside(folder: Path, name: str) -> Path:
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        raise ConfigError(
            f"{name} is a folder without bin/python; name that of a virtual environment (python -m venv)"
        )
    return interpreter


def _executable(path: Path, name: str) -> Path:
    if path.is_file():
        return path
    if "/" not in name and (found := shutil.which(name)):
        return Path(found)
    raise ConfigError(
        f"{name} does not exist; name an interpreter, the folder of a virtual environment, or a requirements"
        " file"
    )


def _facts(interpreter: Path, name: str) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [str(interpreter), "-c", _FACTS],
            cwd="/",  # no folder of the user's work is to be found in place of what is installed
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=FACTS_S,
            check=False,
        )
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be run ({error.strerror}); name an interpreter, the folder of a virtual"
            " environment, or a requirements file"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"{name} did not answer within {FACTS_S:g} s; is it a Python interpreter?"
        ) from error
    try:
        return json.loads(done.stdout.decode(errors="replace").splitlines()[-1])
    except (ValueError, IndexError) as error:
        said = " ".join(done.stderr.decode(errors="replace").split()[:20])
        raise ConfigError(
            f"{name} is no Python interpreter that works: it ended with status {done.returncode}"
            f"{f' and said: {said}' if said else ''}"
        ) from error


def _checked(facts: dict[str, Any], interpreter: Path, name: str) -> Environment:
    python = ".".join(map(str, facts["version"]))
    if tuple(facts["version"]) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise ConfigError(f"{name} has Python {python}, and what measures needs {oldest} or newer")
    if missing := facts["missing"]:
        raise ConfigError(
            f"{name} has no {' and no '.join(missing)}, which trials need: {interpreter} -m pip install"
            f" {' '.join(missing)}"
        )
    return Environment(interpreter=str(interpreter), prefix=facts["prefix"], python=python, abi=facts["abi"])


REQUIREMENTS, PYLOCK = (".txt", ".in"), ".toml"
WHOLE = "perfsweep.json"
"""Written last into an environment."""

_INCLUDES = ("-r", "--requirement", "-c", "--constraint")
_SAID = 400


def is_lock(path: Path) -> bool:
    """Whether a file names packages, and is no interpreter."""
    return path.is_file() and path.suffix in (*REQUIREMENTS, PYLOCK)


def built(file: Path, cache: Path) -> Path:
    """Find the environment of a file in the cache, or build it there; return its folder.

    Raises
    ------
    ConfigError
        The file cannot be read or solved; the message says what the installer did.
    """
    if file.suffix == PYLOCK and not file.name.startswith("pylock"):
        raise ConfigError(f"{file} is no lock; name a requirements.txt or a pylock.toml")
    place = cache.absolute() / key(file)
    with _alone(place):
        if not (place / WHOLE).exists():
            shutil.rmtree(place, ignore_errors=True)
            print(f"building an environment of {file} in {place}", file=sys.stderr, flush=True)
            try:
                _build(file, place)
            except BaseException:
                shutil.rmtree(place, ignore_errors=True)
                raise
            facts = {"of": str(file.absolute()), "python": platform.python_version()}
            write_atomically(place / WHOLE, json.dumps(facts).encode())
    return place


def key(file: Path) -> str:
    """Digest of what a file asks for, with all that it includes, and of the Python it is built for.

    Raises
    ------
    ConfigError
        A file cannot be read, or asks for a folder, whose content may change.
    """
    texts = [*_texts(file, set())]
    facts = [platform.python_version(), sysconfig.get_platform(), sysconfig.get_config_var("SOABI")]
    return hashlib.sha256(json.dumps([*texts, *facts]).encode()).hexdigest()[:16]


def _texts(file: Path, seen: set[Path]) -> Iterator[str]:
    """The texts of a file of requirements and of the files that it includes."""
    if file.resolve() in seen:
        return
    seen.add(file.resolve())
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as text ({error}); name a requirements file") from error
    yield text
    for number, line in enumerate(text.splitlines(), 1) if file.suffix != PYLOCK else ():
        if include := _included(line):
            yield from _texts(file.parent / include, seen)
        elif _is_folder(line):
            raise ConfigError(
                f"{file} line {number} asks for the folder in {line.strip()!r}, which may change unnoticed;"
                " build a wheel of it, or name the folder of an environment that has it"
            )


def _included(line: str) -> str | None:
    words = shlex.split(line.partition(" #")[0].replace("=", " ", 1) if line.startswith("--") else line, True)
    return words[1] if len(words) > 1 and words[0] in _INCLUDES else None


def _is_folder(line: str) -> bool:
    words = line.split()
    return bool(words) and (
        words[0] in ("-e", "--editable") or (words[0].startswith((".", "/")) and Path(words[0]).is_dir())
    )


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Hold an environment against other builders; a lock ends with its process.

    Raises
    ------
    ConfigError
        Nothing can be written there, or another builds it on a file system without locks, where nothing tells
        of its end.
    """
    lock = place.with_name(f"{place.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    except OSError as error:
        raise ConfigError(f"{place.parent} cannot hold environments: {error.strerror}") from error
    while True:
        with holding(lock) as other:
            if not other:
                yield
                return
        if other != OTHER:
            raise ConfigError(f"another command builds the environment {place}; wait for it{other}")
        time.sleep(POLL_S)


POLL_S = 0.2
"""Between looks whether another builder is done."""


def _build(file: Path, place: Path) -> None:
    uv = shutil.which("uv")
    if file.suffix == PYLOCK and uv is None:
        raise ConfigError(
            f"{file}: only uv installs such a lock here, and it is not on the path; install uv, or name a"
            " requirements.txt"
        )
    python = str(place / "bin" / "python")
    if uv:
        _run(file, [uv, "venv", "-q", "--python", sys.executable, str(place)])
        _run(file, [uv, "pip", "install", "-q", "--python", python, "-r", str(file)])
    else:
        _run(file, [sys.executable, "-m", "venv", str(place)])
        _run(file, [python, "-m", "pip", "install", "-q", "--no-input", "-r", str(file)])


def _run(file: Path, command: Sequence[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        who = "uv" if Path(command[0]).name == "uv" else "pip" if "pip" in command else "venv"
        raise ConfigError(
            f"{file}: {who} cannot build an environment of it: {_reason(done.stderr, done.stdout)}"
        )


def _reason(*outputs: str) -> str:
    """What an installer complained of, in one line: what it marks as an error, else what it said last."""
    lines = [line.strip() for output in outputs for line in output.splitlines() if line.strip()]
    marked = [line.partition("ERROR:")[2].strip() for line in lines if line.startswith("ERROR:")]
    said = " ".join(marked[-1:] or lines[-6:]).replace("╰─▶", "").replace("×", "")
    text = " ".join(said.split())
    return text if len(text) <= _SAID else f"{text[:_SAID]} ..."


ENVIRONMENT = "environment"
"""The toggle whose levels are environments."""


def environment_lines(versions: Sequence[Version]) -> Iterator[str]:
    """Name the Python and the torch of each environment, and the packages in which they differ."""
    named = {
        level: version.environment
        for version in versions
        if version.environment
        for toggle, level in version.levels.items()
        if toggle == ENVIRONMENT
    }
    for level, one in named.items():
        yield f"{ENVIRONMENT}={level}: Python {one.python}, torch {one.packages.get('torch', 'unknown')}"
    every = [one.packages for one in named.values()]
    names = sorted({name for packages in every for name in packages} - {"torch"})
    found = {name: [packages.get(name, "none") for packages in every] for name in names}
    differing = [(name, of) for name, of in found.items() if len(set(of)) > 1]
    if differing:
        # What all have, in other versions, says more than what only some have.
        texts = [
            f"{name} {' / '.join(of)}" for name, of in sorted(differing, key=lambda one: "none" in one[1])
        ]
        yield f"packages that differ between environments: {few(texts, most=6)}"
