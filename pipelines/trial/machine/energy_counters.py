"""Counters of energy that a machine keeps: NVML's of GPUs, powercap's (RAPL) of processor packages.

NVML counts millijoules since the driver was loaded (Volta and later), the kernel's powercap microjoules up to
a range of its own. Of powercap's zones packages and their memory (dram) add up; cores and graphics are part
of a package, and psys is all of it together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from perfsweep.pipelines.trial.machine import gpus

POWERCAP = Path("/sys/class/powercap")

NVML_STEP_S = 0.1
"""Seconds between two changes of NVML's counter where nothing has looked: 20 to 100 ms by model (Yang, Adamek
and Armour, Part-time power measurements, 2024)."""
RAPL_STEP_S = 0.001
"""The same of RAPL, which counts about every millisecond (Intel SDM, volume 3, 15.10)."""

MOST_DIGITS = 32
"""Of a counter of 64 bits, with room to spare."""

LOOK_S = 1.0
"""Most seconds for which changes of counters are watched."""
LOOKED_AT = 5
"""Changes after which the time between them is known well enough."""


class Unreadable(Exception):
    """A counter cannot be had; the message says why, as one sentence."""


@dataclass(frozen=True)
class Counter:
    """One counter. `range_j` is where it begins again at 0; None: never."""

    name: str
    read_j: Callable[[], float]
    range_j: float | None = None


@dataclass(frozen=True)
class Counters:
    """The counters of what does a trial's work; `step_s` is the time between two changes of them."""

    source: str
    each: tuple[Counter, ...]
    step_s: float

    def read_j(self) -> tuple[float, ...]:
        """Read all of them, in joules.

        Raises
        ------
        Unreadable
            One of them cannot be read any more.
        """
        return tuple(counter.read_j() for counter in self.each)


@contextmanager
def gpu_counters(indices: Sequence[int]) -> Iterator[Counters]:
    """Those of some GPUs, by their numbers among the visible ones, while NVML is open.

    Raises
    ------
    Unreadable
        NVML does not answer, a GPU is a slice of one, or it has no such counter.
    """
    with gpus.handles() as (nvml, handles):
        if nvml is None or not all(index < len(handles) for index in indices):
            raise Unreadable("NVML does not tell of the GPU that did the work")
        each = tuple(_of_gpu(nvml, handles[index]) for index in indices)
        yield Counters("NVML", each, NVML_STEP_S)


def _of_gpu(nvml: Any, handle: Any) -> Counter:
    name = gpus.name_of(nvml, handle)
    if gpus.is_slice(nvml, handle):
        raise Unreadable(f"{name} is a slice of a GPU, and NVML counts the energy of the whole")

    def read_j() -> float:
        try:
            return nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
        except nvml.NVMLError as error:
            why = f"NVML keeps no total energy of {name} ({error}); GPUs since Volta have it"
            raise Unreadable(why) from error

    read_j()
    return Counter(name, read_j)


@contextmanager
def processor_counters(powercap: Path | None = None) -> Iterator[Counters]:
    """Those of all packages of this machine and of their memory.

    Raises
    ------
    Unreadable
        The machine has none, as most virtual ones, or keeps them from this user.
    """
    root = POWERCAP if powercap is None else powercap
    zones = [zone for zone in sorted(root.glob("intel-rapl:*")) if _adds_up(_text(zone / "name"))]
    if not zones:
        raise Unreadable(f"this machine has no RAPL counters (no package under {root}), as most virtual ones")
    with ExitStack() as opened:
        counters = Counters("RAPL", tuple(_of_zone(zone, opened) for zone in zones), RAPL_STEP_S)
        counters.read_j()
        yield counters


def _of_zone(zone: Path, opened: ExitStack) -> Counter:
    with _opened(zone / "max_energy_range_uj") as file:
        range_j = _joules(file)
    counted = opened.enter_context(_opened(zone / "energy_uj"))
    return Counter(_full_name(zone), partial(_joules, counted), range_j)


def _opened(file: Path) -> FileIO:
    """Open a file of the kernel, whose beginning is new each time that it is read."""
    try:
        return FileIO(file)
    except PermissionError as error:
        remedy = "an administrator can allow it with chmod a+r"
        raise Unreadable(f"{file} may be read by root alone; {remedy}") from error
    except OSError as error:
        raise Unreadable(f"{file} cannot be read ({error.strerror})") from error


def _adds_up(name: str) -> bool:
    return name.startswith("package") or name == "dram"


def _full_name(zone: Path) -> str:
    """``package-0``, and ``dram of package-0``: a zone within another is called by both."""
    name, within = _text(zone / "name"), zone.with_name(zone.name.rpartition(":")[0])
    return f"{name} of {_text(within / 'name')}" if name == "dram" else name


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise Unreadable(f"{file} cannot be read ({error.strerror})") from error


def _joules(file: FileIO) -> float:
    """The number of microjoules in a file of the kernel, in joules."""
    try:
        text = os.pread(file.fileno(), MOST_DIGITS, 0)
    except OSError as error:
        raise Unreadable(f"{file.name} cannot be read ({error.strerror})") from error
    try:
        return int(text) / 1e6
    except ValueError as error:
        raise Unreadable(
            f"{file.name} holds {text.decode(errors='replace').strip()!r} and no number"
        ) from error


def grown_j(counter: Counter, before_j: float, after_j: float) -> float:
    """Joules between two readings; of a counter that began again meanwhile, over its range.

    Raises
    ------
    Unreadable
        It went back although it has no range: the driver was loaded again.
    """
    if after_j >= before_j:
        return after_j - before_j
    if counter.range_j is None:
        raise Unreadable(f"the counter of {counter.name} went back: its driver was loaded again meanwhile")
    return after_j - before_j + counter.range_j


def seconds_between_changes(counters: Counters, now: Callable[[], float] = time.perf_counter) -> float | None:
    """Watch how often the slowest of some counters changes; None where one does not within `LOOK_S`.

    Raises
    ------
    Unreadable
        One of them cannot be read any more.
    """
    changed: list[list[float]] = [[] for _ in counters.each]
    last, start = counters.read_j(), now()
    while (at := now()) - start < LOOK_S and min(map(len, changed)) < LOOKED_AT:
        read = counters.read_j()
        for times, before, after in zip(changed, last, read, strict=True):
            if after != before:
                times.append(at)
        last = read
    if min(map(len, changed)) < 2:
        return None
    return max((times[-1] - times[0]) / (len(times) - 1) for times in changed)
