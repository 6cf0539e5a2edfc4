"""Products of matrices on CPUs by the widest vectors there are, in the place of PyTorch's library for them.

The library (MKL) chooses its code by the processor's maker too, and on some takes vectors half as wide as
they are. Kernels of ours are registered for PyTorch's own operators, so that eager code, backward passes and
compiled graphs alike use them: products of float32, float64 and bfloat16 on one thread. Bfloat16 stays with
the library where that has matrix tiles (AMX); without instructions for it, numbers are widened to float32.
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.native import library

SOURCE = Path(__file__).with_suffix(".cpp")


@functools.cache
def kernels() -> ctypes.CDLL:
    """The built kernels, against the PyTorch that is here; see `perfsweep.workloads.native.library`."""
    root = Path(torch.__file__).parent
    include = (root / "include", root / "include" / "torch" / "csrc" / "api" / "include")
    paths = (*(f"-I{folder}" for folder in include), f"-L{root / 'lib'}")
    # The compiler takes libraries that nothing before them needs only if told so.
    links = ("-Wl,--no-as-needed", "-ltorch_cpu", "-lc10")
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    built_for = f'-DBUILT_FOR="{torch.__version__}"'  # in the name of what is built, and nowhere else
    found = library(SOURCE, "products=native", ("-std=c++20", abi, built_for, *paths, *links))
    found.products_made.restype = ctypes.c_int64
    found.products_take_bfloat16.restype = ctypes.c_bool
    return found


def takes_bfloat16() -> bool:
    """Whether products of bfloat16 are made by our kernels here, not by the library's matrix tiles."""
    return bool(kernels().products_take_bfloat16())


class NativeProducts(AbstractContextManager[None]):
    """Where it is entered, this process's products are made by our kernels, and counted.

    Parameters
    ----------
    endings : at whose close PyTorch gets its operators back
    counts : takes `native_products`

    Raises
    ------
    UnsupportedHere
        There is no compiler that can build the kernels.
    """

    def __init__(self, endings: ExitStack, counts: Counter[str]) -> None:
        self._kernels, self._counts, self._made = kernels(), counts, 0
        self._kernels.products_enter()
        endings.callback(self._kernels.products_leave)

    def __enter__(self) -> None:
        self._made = self._kernels.products_made()
        self._kernels.products_begin()

    def __exit__(self, *error: object) -> None:
        self._kernels.products_end()
        self._counts["native_products"] += self._kernels.products_made() - self._made


def products(level: LevelValue, endings: ExitStack, counts: Counter[str]) -> AbstractContextManager[Any]:
    """What to make products under, by the level of the toggle `products`."""
    return NativeProducts(endings, counts) if level == "native" else nullcontext()
