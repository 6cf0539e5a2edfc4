"""Energy of a timed region, from counters read at both of its ends: never inside it.

The machine keeps the counters: NVML's of GPUs, powercap's (RAPL) of processor packages. NVML counts
millijoules since the driver was loaded (Volta and later), the kernel's powercap microjoules up to a range of
its own. Of powercap's zones packages and their memory (dram) add up; cores and graphics are part of a
package, and psys is all of it together.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.environment import HostUsage, foreign_cores
from perfsweep.pipelines.units import duration

ENERGY_J = "energy_j"
"""The quantity in records: joules of all counters over the region; each of several has one of its own."""

WORST_SHARE = 0.02
"""Most of a region that a counter may miss: it lags by up to the time between two changes at either end."""
MOST_W = 800.0
"""More than any package draws: for as long as a counter's range lasts at this power it begins again once at
most."""
SHARED_CORES = 0.25
"""Cores' worth of other work during a trial that a counter of the whole machine may cover."""


@dataclass(frozen=True)
class Spent:
    """What one rank's counters say of its regions; `reason` in its place where they say nothing."""

    joules: dict[str, float] = field(default_factory=dict)
    regions: int = 0
    seconds: float = 0.0
    step_s: float = 0.0
    source: str = ""
    reason: str = ""


def record_fields(ranks: Sequence[Spent], job: bool) -> dict[str, Any]:
    """Fields of the record from what all ranks spent: joules, or why there are none."""
    reasons = [one.reason for one in ranks if one.reason] or list(filter(None, map(too_short, ranks)))
    if reasons:
        return without(_with_remedy(reasons[0], ranks, job))
    parts: dict[str, float] = {}
    for name, joules in ((name, joules) for one in ranks for name, joules in one.joules.items()):
        parts[name] = parts.get(name, 0.0) + joules
    total = sum(parts.values())
    if not total > 0:
        return without("the counters did not move in the whole region")
    each = {f"{ENERGY_J} {name}": joules for name, joules in parts.items()} if len(parts) > 1 else {}
    source = next(one.source for one in ranks if one.source)
    return {
        "quantities": {ENERGY_J: total, **each},
        "withheld": {},
        "energy": {"source": source, "counters": list(parts)},
    }


def without(reason: str) -> dict[str, Any]:
    """Fields of the record where there is no energy."""
    return {"quantities": {}, "withheld": {ENERGY_J: reason}, "energy": {}}


def shared(quantities: Mapping[str, float], reason: str) -> dict[str, Any]:
    """Fields of the record where others drew the energy too: the other `quantities` stay."""
    rest = {name: value for name, value in quantities.items() if not name.startswith(ENERGY_J)}
    return {**without(reason), "quantities": rest}


def too_short(one: Spent) -> str:
    """Say that regions were too short for counters that change so seldom; empty where they were not."""
    if not one.regions or one.regions * one.step_s <= WORST_SHARE * one.seconds:
        return ""
    return (
        f"{one.source}'s counters change every {duration(one.step_s * 1e9)}, and a turn took"
        f" {duration(one.seconds / one.regions * 1e9)}; one of {duration(least_s(one) * 1e9)} would do"
    )


def least_s(one: Spent) -> float:
    """Seconds that a region must have so that what a counter misses at its ends is a small share."""
    return one.step_s / WORST_SHARE


def _with_remedy(reason: str, ranks: Sequence[Spent], job: bool) -> str:
    short = next((one for one in ranks if too_short(one)), None)
    if short is None or any(one.reason for one in ranks):
        return reason
    # Twice as long: an arm may be faster than the one that the region's iterations come from, and a region
    # may end with a short turn.
    wanted = _two_digits(2 * least_s(short))
    region = ", where a job lasts as long" if job else f" measure.region_s={wanted}"
    return f"{reason}: measure.turn_s={wanted}{region}"


def _two_digits(value: float) -> str:
    """Round up to two digits."""
    size = math.floor(math.log10(value)) - 1
    return f"{math.ceil(value / 10.0**size - 1e-9) * 10.0**size:.{max(0, -size)}f}"


def shared_by(
    before: HostUsage, after: HostUsage, counters: Iterable[str], source: str, beside_cores: float
) -> str:
    """Say who else drew from the counters of a trial; empty where no other trial is known to have.

    Parameters
    ----------
    counters : names of the counters that were read; of GPUs their UUIDs
    beside_cores : cores' worth of time that the trial's other processes may use
    """
    if source == "NVML":
        names = set(counters)
        foreign = [gpu for gpu in (*before.gpus, *after.gpus) if gpu.uuid in names and gpu.foreign]
        return f"{foreign[0].uuid} had other processes, which drew from the same counter" if foreign else ""
    others = (foreign_cores(before, after) or 0.0) - beside_cores
    if others <= SHARED_CORES:
        return ""
    return f"other processes used {others:.1f} cores, which drew from the same counter of the package"


class Meter:
    """Reads the counters of the devices that do a trial's work.

    Parameters
    ----------
    devices : numbers of the GPUs among the visible ones; none: the processor does the work
    counts : whether this rank reads: of the ranks that share a machine's counters the first one does
    step_s : time between two changes of the counters, where a process has looked; None: what is known of them
    now : seconds of a clock that never jumps
    """

    def __init__(
        self,
        devices: Sequence[int],
        counts: bool = True,
        step_s: float | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._open = ExitStack()
        self._counters: Counters | None = None
        self._step_s, self._now = step_s, now
        self._reason = ""
        if counts:
            self._find(devices)
        self.forget()

    def _find(self, devices: Sequence[int]) -> None:
        try:
            found = gpu_counters(devices) if devices else processor_counters()
            self._counters = self._open.enter_context(found)
        except Unreadable as error:
            self._reason = str(error)

    def close(self) -> None:
        """Let go of NVML."""
        self._open.close()

    def forget(self) -> None:
        """Begin again: the regions so far do not count, and neither does what went wrong in them."""
        if self._counters is not None:
            self._reason = ""
        self._before: tuple[float, ...] = ()
        self._joules: dict[str, float] = {}
        self._regions, self._seconds, self._began = 0, 0.0, 0.0

    def begin(self) -> None:
        """A region begins now; the device has done all that it was given before."""
        if self._counters is not None and not self._reason:
            try:
                self._before, self._began = self._counters.read_j(), self._now()
            except Unreadable as error:
                self._reason = str(error)

    def end(self) -> None:
        """The region has ended."""
        if self._counters is not None and not self._reason:
            try:
                self._add(self._counters)
            except Unreadable as error:
                self._reason = str(error)

    def _add(self, counters: Counters) -> None:
        read, seconds = counters.read_j(), self._now() - self._began
        for counter, before, after in zip(counters.each, self._before, read, strict=True):
            if counter.range_j is not None and seconds > counter.range_j / MOST_W:
                raise Unreadable(
                    f"the counter of {counter.name} may have begun again more than once in {seconds:.0f} s; a"
                    f" region under {counter.range_j / MOST_W:.0f} s would do"
                )
            joules = grown_j(counter, before, after)
            self._joules[counter.name] = self._joules.get(counter.name, 0.0) + joules
        self._regions += 1
        self._seconds += seconds

    def spent(self) -> Spent:
        """What the counters say of the regions so far."""
        if self._counters is None or self._reason:
            return Spent(reason=self._reason)
        return Spent(
            joules=dict(self._joules),
            regions=self._regions,
            seconds=self._seconds,
            step_s=self._step_s or self._counters.step_s,
            source=self._counters.source,
        )


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
def processor_counters() -> Iterator[Counters]:
    """Those of all packages of this machine and of their memory.

    Raises
    ------
    Unreadable
        The machine has none, as most virtual ones, or keeps them from this user.
    """
    zones = [zone for zone in sorted(POWERCAP.glob("intel-rapl:*")) if _adds_up(_text(zone / "name"))]
    if not zones:
        raise Unreadable(
            f"this machine has no RAPL counters (no package under {POWERCAP}), as most virtual ones"
        )
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
