"""Environments as versions: what a person names, and the interpreter that is meant."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.schema import Environment
from perfsweep.pipelines.versions import locked
from perfsweep.workloads.errors import ConfigError

OLDEST_PYTHON = (3, 11)
"""What measures is written for it."""

FACTS_S = 60.0

# Runs in any Python that somebody names, so it is as old as that may be; torch is looked for, not imported.
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
    """Find the environment that a name stands for, and build that of a lock file where it is not there.

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
    if locked.is_lock(path):
        interpreter = locked.built(path, cache) / "bin" / "python"
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
            cwd="/",  # no folder of somebody's work is to be found in place of what is installed
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
