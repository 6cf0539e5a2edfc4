"""The memory of a process: the draw of its layout, and the state of Python's collector.

The layout is hash seed, size of the environment, heap and mappings, and the allocator.

Where code and data lie moves a small workload's time by per cents, the same in every iteration of a process
and so in every trial that shares it (Mytkowicz et al. 2009). Held still it would be a bias of the sweep;
drawn again for every trial it is noise that rounds average away (Curtsinger and Berger 2013). What the kernel
draws once for a server (libraries, the stack's start) is why servers are renewed.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import mmap
import os
import random

from perfsweep.workloads.api import Declaration, Levels
from perfsweep.workloads.preloads import STEADY

_PADDING = "PERFSWEEP_PADDING"
_PAGE = mmap.PAGESIZE

_SMALL_SIZES = range(24, 1032, 16)
_BLOCKS_PER_SIZE = 24
"""More than a server's imports leave free of any size: there are some two hundred holes in all."""

_held: list[object] = []
"""Blocks that shift the heap, alive as long as the process."""


def draw(*identity: object) -> int:
    """A seed of 32 bits, as PYTHONHASHSEED takes it, from what a process is known by."""
    text = "\n".join(map(str, identity))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def environment(allocator: str, seed: int | None) -> dict[str, str]:
    """Variables that a server, or a trial by exec, starts with.

    With a seed its strings hash by it and its stack begins elsewhere; without one, strings hash the same in
    every sweep, which is what evidence needs.
    """
    steady = dict(STEADY) if allocator == "steady" else {}
    if seed is None:
        return {**steady, **hashing("0")}
    padding = "." * random.Random(seed).randrange(_PAGE)
    return {**steady, **hashing(str(seed)), _PADDING: padding}


def hashing(drawn: str) -> dict[str, str]:
    """The seed of a process's hashes: the user's own, which holds data that follows them, else as drawn."""
    own = os.environ.get("PYTHONHASHSEED", "")
    return {"PYTHONHASHSEED": own if own.isdecimal() else drawn}


def shift_addresses(seed: int) -> None:
    """Move what this process allocates from here on: the heap's end, its free blocks, and new mappings.

    Holes that its server has left are filled first. They lie in the same places in every trial of it, far
    from one another, and an arm that allocates a little more would fill them and be faster for that alone:
    120 tensors of 64 floats made steps of 1.6 ms 1 % faster.
    """
    rng = random.Random(seed)
    libc = ctypes.CDLL(None)
    sizes = [size for size in _SMALL_SIZES for _ in range(_BLOCKS_PER_SIZE)]
    rng.shuffle(sizes)
    for size in sizes:
        libc.malloc(ctypes.c_size_t(size))  # never given back
    if hasattr(libc, "sbrk"):
        libc.sbrk.restype = ctypes.c_void_p
        libc.sbrk(ctypes.c_ssize_t(64 * rng.randrange(4 * _PAGE // 64)))
    _held.append(mmap.mmap(-1, _PAGE * rng.randrange(1, 512)))
    blocks = [bytearray(rng.randrange(512, 8192)) for _ in range(200)]
    # Every second one leaves a hole, which small tensors of the arm will fill.
    _held.extend(blocks[::2])


def keep_junk(amount: int) -> None:
    """Keep `amount` times what does nothing: objects, entries of a dict, small tensors and a large one."""
    import torch

    _held.append([[number] for number in range(1000 * amount)])
    _held.append({f"entry {number}": number for number in range(500 * amount)})
    _held.append([torch.zeros(64) for _ in range(30 * amount)])
    _held.append(torch.zeros(250_000 * amount))


def prepare_collector(workload: type[Declaration], levels: Levels) -> None:
    """Before set-up: a workload that measures the collector sees it as an ordinary process does."""
    if _measures_collector(workload, levels):
        gc.unfreeze()


def settle_collector(workload: type[Declaration], levels: Levels) -> None:
    """After warm-up, one state of Python's collector for all arms, unless it is a toggle of the workload."""
    if not _measures_collector(workload, levels):
        gc.collect()
        gc.freeze()


def _measures_collector(workload: type[Declaration], levels: Levels) -> bool:
    return any(toggle.owns_collector for toggle in workload.toggles_named(levels))
