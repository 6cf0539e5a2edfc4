"""What is installed where a trial runs: the packages of its environment, without importing any.

Names and versions are those of the folders that installers leave beside what they install (PEP 376). What
measures is no part of it, nor is what `PYTHONPATH` adds: an environment is the same in every sweep.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from perfsweep.pipelines.trial.machine.torch_version import torch_build
from perfsweep.workloads.errors import ConfigError

_AT_START = tuple(sys.path)
"""Before the user's code adds to it: whoever needs this module imports it first."""

_OURS = "perfsweep"
_FOLDER = re.compile(r"^(?P<name>[^-]+)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info$")


def packages(path: Iterable[str] = _AT_START) -> dict[str, str]:
    """List the version of each installed package, by name; of two the one that is imported first."""
    added = {Path(entry).resolve() for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    folders = [folder for entry in path if entry and (folder := Path(entry).resolve()) not in added]
    found: dict[str, str] = {}
    for folder in dict.fromkeys(folders):
        for place in sorted(folder.iterdir()) if folder.is_dir() else ():
            if (match := _FOLDER.match(place.name)) and match["name"] != _OURS:
                found.setdefault(re.sub(r"[-_.]+", "-", match["name"]).lower(), match["version"])
    return {**found, "torch": torch_build().version}


def digest() -> str:
    """Digest of the interpreter, where it lies, and what is installed for it."""
    facts = [platform.python_version(), str(Path(sys.prefix)), packages()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def refuse_others(planned: str) -> None:
    """Refuse to run in an environment that is not what it was; `planned` is its digest, or empty.

    Raises
    ------
    ConfigError
        Something was installed, upgraded or removed since the sweep was planned.
    """
    if planned and digest() != planned:
        raise ConfigError(
            f"the packages of {sys.prefix} are not those that the sweep was planned with; start the same"
            " command again"
        )
