"""Every process of a node has the pretended GPU: NVML tells of it, torch is built for it and computes on it.

In force where this folder and its parent are on PYTHONPATH, and PRETEND_CUDA_LIBRARY names the library.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from fake_nvml import GIB, FakeNvml

CUDA = "13.0"
GPU = {
    "name": "NVIDIA H100 80GB HBM3",
    "uuid": "GPU-00000000-0000-0000-0000-000000000001",
    "capability": (9, 0),
    "memory": 80 * GIB,
    "max_clock": 1980,
    "power_limit": 700_000,
    "compute_mode": 0,
}


def _computes(torch: Any) -> None:
    import pretend_cuda  # noqa: F401
    from pretend_cuda.graphs import compiled

    torch.version.cuda = CUDA
    torch.compile = compiled
    torch.cuda.get_arch_list = lambda: ["sm_90"]


def _is_built_for_it(gpus: Any) -> None:
    of_wheel = gpus.torch_build
    gpus.torch_build = lambda: gpus.TorchBuild(of_wheel().version, CUDA)


AFTER = {"torch": _computes, "perfsweep.pipelines.trial.machine.gpus": _is_built_for_it}


class Loader(importlib.abc.Loader):
    """Loads a module as ever, and changes it then."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As ever."""
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load the library that torch lacks before torch."""
        if module.__name__ == "torch":
            ctypes.CDLL(os.environ["PRETEND_CUDA_LIBRARY"], mode=ctypes.RTLD_GLOBAL)
        self.own.exec_module(module)
        AFTER[module.__name__](module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds what the finders after it find."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec whose loader changes the module, for a name in AFTER."""
        if name not in AFTER:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        if found is not None:
            found.loader = Loader(found.loader)
        return found


if "PRETEND_CUDA_LIBRARY" in os.environ:
    sys.modules["pynvml"] = FakeNvml(GPU)
    sys.meta_path.insert(0, Finder())
