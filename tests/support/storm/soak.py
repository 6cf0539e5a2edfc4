"""Thousands of short trials in one sweep: does anything grow with their number?

Memory, file handles and processor time are read while the sweep runs; when trials began and ended is in
their records.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil

from storm.processes import Role
from storm.world import World

EVERY_S = 1.0
WATCHED = (Role.COMMAND, Role.PACK, Role.SERVER)
ARMS = 10


@dataclass(frozen=True)
class Sample:
    """A process at one moment: `trials` had been recorded by then."""

    role: Role
    trials: int
    memory_mib: float
    handles: int
    cpu_s: float


@dataclass(frozen=True)
class Growth:
    """A figure in the second and in the last quarter of the trials, where the first one warms up."""

    what: str
    unit: str
    second: float
    last: float

    @property
    def share(self) -> float:
        """Relative growth."""
        return self.last / self.second - 1 if self.second else 0.0


def soaked(world: World, trials: int, say: Callable[[str], None]) -> tuple[list[Growth], int]:
    """Run a sweep of one pack with so many timing trials of about 20 ms.

    Returns what grew by how much, and the status of the command.
    """
    world.sweep = "soak"
    levels = ",".join(str(number) for number in range(2, ARMS + 1))
    arguments = (
        *("sweep", "workload=toys.spinner:Spinner", f"name={world.sweep}", f"runs={world.runs}"),
        *("cluster=local", "cluster.slots=1", "tracking=disabled", f"axes.slab=[{levels}]"),
        *("measure.servers=1", "measure.repeats=0", "measure.timed_parity=false", "measure.iterations=20"),
        *("measure.warmup_max=5", "measure.evidence_iterations=2", "measure.counting_iterations=2"),
        *("workload.products=20", f"measure.rounds={max(3, trials // ARMS)}"),
    )
    process = world.start(arguments, world.outputs / "soak.txt")
    samples: list[Sample] = []
    told = 0
    while process.poll() is None:
        done = _recorded(world.folder)
        samples += sampled(world, done)
        if done // 500 > told:
            told = done // 500
            say(f"{done} trials")
        time.sleep(EVERY_S)
    return [*grown(samples), *_times(world.folder)], process.returncode


def sampled(world: World, trials: int) -> Iterator[Sample]:
    """The oldest process of each role, which is the one that stays."""
    for role in WATCHED:
        with suppress(psutil.Error):
            for one in world.processes(role)[:1]:
                with one.oneshot():
                    memory, cpu = one.memory_full_info().uss, one.cpu_times()
                    yield Sample(role, trials, memory / 2**20, one.num_fds(), cpu.user + cpu.system)


def _recorded(folder: Path) -> int:
    """Timing trials that the pack has noted: a line each, which costs nothing to count."""
    file = folder / "packs" / "p000" / "events.jsonl"
    return file.read_bytes().count(b'"timing"') if file.exists() else 0


def grown(samples: Sequence[Sample]) -> Iterator[Growth]:
    """Medians of the second and the last quarter, by role; processor time for a thousand trials.

    What follows the last trial is the comparison of all of them, once.
    """
    most = max((one.trials for one in samples), default=0)
    for role in WATCHED:
        own = [one for one in samples if one.role is role and one.trials < most]
        quarters = [[one for one in own if n * most / 4 <= one.trials <= (n + 1) * most / 4] for n in (1, 3)]
        if not all(quarters):
            continue
        for what, unit, name in (("memory", "MiB", "memory_mib"), ("file handles", "", "handles")):
            middle = (median(getattr(one, name) for one in some) for some in quarters)
            yield Growth(f"{what} of the {role}", unit, *middle)
        yield Growth(f"processor time of the {role}", "s/1000 trials", *map(_cpu_rate, quarters))


def _cpu_rate(samples: Sequence[Sample]) -> float:
    trials = samples[-1].trials - samples[0].trials
    return (samples[-1].cpu_s - samples[0].cpu_s) / trials * 1000 if trials else 0.0


def _times(folder: Path) -> Iterator[Growth]:
    """From one trial's end to the next one's, and of that what the trial itself took."""
    found = []
    for file in folder.glob("trials/*/*-r*/record.json"):
        values = json.loads(file.read_text())
        found.append((values["started"], values["ended"]))
    found.sort()
    ends = [end for _, end in found]
    steps = [(b - a) * 1e3 for a, b in pairwise(ends)]
    own = [(end - start) * 1e3 for start, end in found]
    for what, values in (("time from trial to trial", steps), ("time of a trial", own)):
        size = len(values) // 4
        if size:
            second, last = values[size : 2 * size], values[3 * size :]
            yield Growth(what, "ms", median(second), median(last))
