"""Which torch is installed, without importing it.

Importing torch takes more than a second of a process that may only start others.
"""

from __future__ import annotations

import importlib.util
import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workloads.errors import ConfigError


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
