"""Toggles whose levels set what a process starts with: any workload has them, in sweeps that name them.

`allocator` is which malloc it runs with; elsewhere `measure.allocator` decides. A library takes malloc's
place by LD_PRELOAD and is refused where the loader would not find it, since it would run on without it and
say so only to the log.

`mkl_vectors` is which vectors PyTorch's library of products (MKL) takes. It asks for the processor's maker
first, and takes at most AVX2 of others than Intel's; `MKL_ENABLE_INSTRUCTIONS` and `MKL_CBWR` have no effect
there, as Intel's developer guide says of the first. A library that is loaded before it answers for the maker
(Daniel de Kok, "Intel MKL on AMD Zen").
"""

from __future__ import annotations

import ctypes
import itertools
import platform
from collections.abc import Mapping
from pathlib import Path

from perfsweep.workloads.declarations import Device, Level, Toggle

STEADY: Mapping[str, str] = {
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(128 << 20),
}
"""Keep glibc from giving the heap's top back in every iteration and faulting it in again in the next: it does
so or not by where the heap happens to end, at some microseconds a page. One of the three alone is not enough.
"""

LIBRARIES = {"jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib")


def _needs_glibc(device: Device) -> str | None:
    return None if platform.libc_ver()[0] == "glibc" else "needs glibc's malloc"


def _preloaded(name: str) -> Level:
    library = LIBRARIES[name]

    def missing(device: Device) -> str | None:
        places = itertools.chain.from_iterable((Path(at), *Path(at).glob("*-linux-gnu")) for at in _FOLDERS)
        there = any((place / library).exists() for place in places)
        return None if there else f"needs {library}, which is not installed"

    return Level(name, unsupported=missing, env={"LD_PRELOAD": library})


ALLOCATOR = Toggle(
    "allocator",
    (Level("system"), Level("steady", unsupported=_needs_glibc, env=STEADY), *map(_preloaded, LIBRARIES)),
    "malloc as the machine has it, one that keeps what it has, or another library's",
    owns_allocator=True,
)
"""How `malloc` treats the heap."""

INTEL = "GenuineIntel"


def _needs_another_maker(device: Device) -> str | None:
    if device.type != "cpu":
        return f"MKL multiplies on CPUs, and this is {device.type}"
    if device.vendor == INTEL:
        return "MKL takes the widest vectors of this processor by itself"
    if not device.vendor:
        return "PyTorch multiplies without MKL on this processor"
    return None if device.compiler else "needs a C++ compiler, and none is on PATH"


MKL_VECTORS = Toggle(
    "mkl_vectors",
    (
        Level("by_maker"),
        Level(
            "all",
            unsupported=_needs_another_maker,
            env={"LD_PRELOAD": "{built:mkl_vectors.cpp}"},
            witness="mkl_asked",
        ),
    ),
    "let MKL choose its vectors by the processor's maker, or by what the processor has",
)


def mkl_asked() -> float:
    """1 where MKL has asked the library that answers for the maker, 0 where it has not or there is none."""
    count = getattr(ctypes.CDLL(None), "mkl_vectors_asked", None)
    return float(bool(count and count()))
