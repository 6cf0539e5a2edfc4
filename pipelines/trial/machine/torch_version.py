"""Which torch is installed, without importing it, and whether the driver can run it.

Importing torch takes more than a second of a process that may only start others.
"""

from __future__ import annotations

import importlib.util
import runpy
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from perfsweep.workloads.errors import ConfigError


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
