"""What is installed where a trial runs: the packages of its environment, without importing any.

Names and versions are those of the folders that installers leave next to what they install (PEP 376). What
measures is no part of it, nor is what `PYTHONPATH` adds: an environment is the same in every sweep.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import runpy
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfsweep.workloads.errors import ConfigError

_AT_START = tuple(sys.path)
"""Before the user's code adds to it: code that needs this module imports it first."""

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
            f"the packages of {sys.prefix} differ from the plan of the sweep; start the same command again"
        )


@dataclass(frozen=True)
class TorchBuild:
    """Version of the installed torch, and the CUDA toolkit it was built with, or None."""

    version: str
    cuda: str | None


@cache
def torch_build() -> TorchBuild:
    """What the installed torch says about itself in its `version.py`, which imports nothing.

    Raises
    ------
    ConfigError
        No torch is installed for this interpreter.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise ConfigError("torch is not installed for this Python: pip install torch")
    facts = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return TorchBuild(version=str(facts["__version__"]), cuda=facts["cuda"])


_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""For each major version of CUDA the first driver that runs what any minor version of it built [1].

[1] NVIDIA, CUDA Compatibility: minor version compatibility
"""


def driver_refusal(build: TorchBuild, driver: str | None, cuda: tuple[int, int] | None) -> str | None:
    """Say in a sentence that the driver is too old for the installed torch, or None.

    Parameters
    ----------
    driver, cuda : version of the driver, and of CUDA that it knows; None where it does not tell
    """
    if build.cuda is None or cuda is None:
        return None
    built = int(build.cuda.partition(".")[0])
    if cuda[0] >= built:
        return None
    oldest = f" (driver {_OLDEST_DRIVER[built]} or newer)" if built in _OLDEST_DRIVER else ""
    return (
        f"NVIDIA driver {driver} knows CUDA {cuda[0]}.{cuda[1]}, and torch {build.version} was built with"
        f" CUDA {build.cuda}: have the driver updated{oldest}, or install a torch built with CUDA {cuda[0]}"
    )
