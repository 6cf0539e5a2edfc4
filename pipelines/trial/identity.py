"""What an arm is: a hash over everything that decides what it computes and how it is timed.

The packages that are installed where its trials run decide too; they are listed without importing any. Names
and versions are those of the folders that installers leave next to what they install (PEP 376). What measures
is no part of it, nor is what `PYTHONPATH` adds: an environment is the same in every sweep.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.trial_schema import SCHEMA
from perfsweep.pipelines.trial.machine.gpus import torch_build
from perfsweep.workloads import registry
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.errors import ConfigError


def code_digest(cls: type[Declaration]) -> str:
    """Digest of the workload's sources, the contract, shared toggles and all of this folder."""
    return registry.digest([*registry.sources(cls), *sorted(Path(__file__).parent.rglob("*.py"))])


def arm_id(workload: str, config: Any, levels: Mapping[str, Any], code: str) -> str:
    """First 16 hex digits of SHA-256 over canonical JSON, without the seed and facts of the machine."""
    identity = {
        "workload": workload,
        "config": dataclasses.asdict(config),
        "levels": dict(levels),
        "code": code,
        "schema": SCHEMA,
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:16]


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


def packages_digest() -> str:
    """Digest of the interpreter, where it lies, and what is installed for it."""
    facts = [platform.python_version(), str(Path(sys.prefix)), packages()]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def refuse_other_packages(planned: str) -> None:
    """Refuse to run in an environment that is not what it was; `planned` is its digest, or empty.

    Raises
    ------
    ConfigError
        Something was installed, upgraded or removed since the sweep was planned.
    """
    if planned and packages_digest() != planned:
        raise ConfigError(
            f"the packages of {sys.prefix} differ from the plan of the sweep; start the same command again"
        )
