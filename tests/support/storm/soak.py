"""Thousands of short trials in one sweep: does anything grow with their number?

Memory, file handles and processor time are read while the sweep runs; when trials began and ended is in
their records. Times are in calibration loops of the same trials: machines change their speed meanwhile.
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
    """A figure in the second and in the last quarter of the trials, where the first one warms up.

    The command reads all records for its live table, more of them each time. What it takes in the last
    quarter is held against a command that does nothing else: `second` is that one's.
    """

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
    loops = in_loops(world.folder)
    fresh_mib = _comparison_mib(world)
    return [*grown(samples, fresh_mib, loops["calibration"]), *times(loops)], process.returncode


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


def grown(samples: Sequence[Sample], fresh_mib: float, calibration_ms: Sequence[float]) -> Iterator[Growth]:
    """What the second and the last quarter took, by role; processor time for each trial, in loops.

    What follows the last trial is the comparison of all of them, once.
    """
    most = max((one.trials for one in samples), default=0)
    loop_ms = [median(some) for some in _quarters(calibration_ms)]
    for role in WATCHED:
        own = [one for one in samples if one.role is role and one.trials < most]
        quarters = [[one for one in own if n * most / 4 <= one.trials <= (n + 1) * most / 4] for n in (1, 3)]
        if not all(quarters):
            continue
        second, last = (median(one.memory_mib for one in some) for some in quarters)
        yield Growth(f"memory of the {role}", "MiB", fresh_mib if role is Role.COMMAND else second, last)
        yield Growth(
            f"file handles of the {role}", "", *(max(one.handles for one in some) for some in quarters)
        )
        rates = (_cpu_ms(some) / loop for some, loop in zip(quarters, loop_ms, strict=True))
        yield Growth(f"processor time of the {role}", "loops a trial", *rates)


def _comparison_mib(world: World) -> float:
    """The most memory that a comparison of the finished sweep takes."""
    process = world.start(("compare", str(world.folder)), world.outputs / "compare.txt")
    most = 0.0
    while process.poll() is None:
        with suppress(psutil.Error):
            most = max(most, psutil.Process(process.pid).memory_full_info().uss / 2**20)
        time.sleep(0.02)
    return most


def _cpu_ms(samples: Sequence[Sample]) -> float:
    trials = samples[-1].trials - samples[0].trials
    return (samples[-1].cpu_s - samples[0].cpu_s) / trials * 1e3 if trials else 0.0


def in_loops(folder: Path) -> dict[str, list[float]]:
    """Of each trial in the order of their ends: its time, that since the end before, and its loop in ms."""
    records = [json.loads(file.read_text()) for file in folder.glob("trials/*/*-r*/record.json")]
    records.sort(key=lambda one: one["ended"])
    loops_ms = [one["calibration_ns"] / 1e6 for one in records]
    own = [(one["ended"] - one["started"]) * 1e3 for one in records]
    steps = [(b["ended"] - a["ended"]) * 1e3 for a, b in pairwise(records)]
    return {
        "calibration": loops_ms,
        "time from trial to trial": [step / loop for step, loop in zip(steps, loops_ms[1:], strict=True)],
        "time of a trial": [time_ms / loop for time_ms, loop in zip(own, loops_ms, strict=True)],
    }


def times(loops: dict[str, list[float]]) -> Iterator[Growth]:
    for what, values in loops.items():
        if what != "calibration" and len(values) >= 4:
            yield Growth(what, "loops", *map(median, _quarters(values)))


def _quarters(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The second and the last."""
    size = len(values) // 4
    return values[size : 2 * size], values[3 * size :]
