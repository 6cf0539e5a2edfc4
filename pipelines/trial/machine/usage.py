"""What the kernel counted of this process between two moments: cores it waited for, faults, system time.

Read before and after a region, never inside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DISPLACED_SHARE = 0.02
"""Share of a region for which threads were kept from a core: so much alone makes up the spread that plans
allow a pair (`plan.power`). A quiet core shows a tenth of it."""
DISPLACEMENTS_PER_S = 10.0
"""The same in involuntary switches, where the kernel keeps no run delay: a slice of a neighbour lasts 2 to 4
ms."""
OTHERS_SHARE = 0.01
"""Share of a region's CPU time beyond which other threads count as part of its work."""

_TASKS = Path("/proc/self/task")
_OWN = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class Moment:
    """Counts so far. `threads`: by thread id ns on a core and ns runnable without one; empty if not kept."""

    threads: Mapping[int, tuple[int, int]]
    counts: resource.struct_rusage


@dataclass(frozen=True)
class Usage:
    """What the kernel counted between two moments.

    Attributes
    ----------
    run_delay_ns : time that threads were runnable and others had their cores, summed over threads that were
        there at the end; None where the kernel does not tell
    own_delay_ns : the same of the thread that asked alone, read next to the region's first and last mark
    others_ns : CPU time of threads other than the one that asked
    displacements : how often the core of a thread was taken away
    """

    run_delay_ns: int | None = None
    own_delay_ns: int | None = None
    others_ns: int = 0
    system_ns: int = 0
    minor_faults: int = 0
    major_faults: int = 0
    displacements: int = 0

    @classmethod
    def between(cls, before: Moment, after: Moment) -> Usage:
        """Subtract two moments; call it in the thread whose work is measured."""
        grown = {
            thread: (times[0] - then[0], times[1] - then[1])
            for thread, times in after.threads.items()
            for then in [before.threads.get(thread, (0, 0))]
        }
        own, then, now = threading.get_native_id(), before.counts, after.counts
        return cls(
            run_delay_ns=sum(waited for _, waited in grown.values()) if grown else None,
            others_ns=sum(on_core for thread, (on_core, _) in grown.items() if thread != own),
            system_ns=round((now.ru_stime - then.ru_stime) * 1e9),
            minor_faults=now.ru_minflt - then.ru_minflt,
            major_faults=now.ru_majflt - then.ru_majflt,
            displacements=now.ru_nivcsw - then.ru_nivcsw,
        )

    def __add__(self, other: Usage) -> Usage:
        """The two together; a figure that one of them lacks is unknown."""
        return Usage(*map(_sum, dataclasses.astuple(self), dataclasses.astuple(other)))

    def displaced(self, wall_ns: int) -> bool:
        """Whether others had this process's cores for more of a region than a sound trial allows."""
        if self.run_delay_ns is None:
            return self.displacements > DISPLACEMENTS_PER_S * wall_ns / 1e9
        return self.run_delay_ns > DISPLACED_SHARE * wall_ns

    def others_rest(self, cpu_ns: int) -> bool:
        """Whether next to none of a region's CPU time was that of other threads."""
        return self.others_ns <= OTHERS_SHARE * cpu_ns


def _sum(one: int | None, other: int | None) -> Any:
    return None if one is None or other is None else one + other


def moment() -> Moment:
    """Read the counts of all threads; some 50 us."""
    return Moment(_thread_times(), resource.getrusage(resource.RUSAGE_SELF))


def delay_ns() -> int | None:
    """Time that this thread was runnable and others had its core; None where the kernel does not tell."""
    try:
        return int(_OWN.read_text().split()[1])
    except (OSError, IndexError):
        return None


def _thread_times() -> dict[int, tuple[int, int]]:
    times = {}
    with contextlib.suppress(OSError):  # no /proc, or a kernel without schedstat
        for task in _TASKS.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
                on_core, waited, _ = (task / "schedstat").read_text().split()
                times[int(task.name)] = int(on_core), int(waited)
    return times
