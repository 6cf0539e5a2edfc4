"""The toggle `allocator`: which malloc a process runs with. Any workload has it, in sweeps that name it.

Elsewhere `measure.allocator` decides. A library takes malloc's place by LD_PRELOAD and is refused where the
loader would not find it, since it would run on without it and say so only to the log.
"""

from __future__ import annotations

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
