"""What lies under `profiles/` in the folder of a sweep: names, schemas, reading and writing.

::

    profiles/<arm>/<tool>/      spec.json record.json log.txt profile.json, and what the tool writes

Nothing here is a timing: the stages from collect on read `trials/` alone.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from perfsweep.pipelines.store.files import read_arrays, write_arrays, write_atomically
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.records import (
    SCHEMA,
    AnyRow,
    Arm,
    StoredValue,
    SweepFolder,
    TrialSpec,
    read_row,
    row_json,
)
from perfsweep.pipelines.units import duration
from perfsweep.workloads.errors import RecordError

RESULT = "profile.json"
SPEC = "spec.json"
UNFINISHED = ".unfinished"
"""Ends the name of a profile's folder until the profile is whole."""

OWN_FILES = (RESULT, SPEC, "record.json", "status.json", "log.txt", "debug.log")
"""Everything else in a profile's folder was written by its tool, to be opened."""

_LONGEST_NAME = 60


class ProfileSpec(StoredValue):
    """Specification of one profile process."""

    schema_version: int = SCHEMA
    trial: TrialSpec
    options: ProfileConfig


class Cost(StoredValue):
    """One line of a profile, over all repetitions of its slice: an operator, function, phase or frame.

    `self_ns` and `device_ns` are times without what it called, on the host and on the device.
    """

    name: str
    where: str = ""
    self_ns: float = 0.0
    device_ns: float = 0.0
    calls: float = 0.0
    flops: float | None = None
    bytes: float | None = None

    @property
    def total_ns(self) -> float:
        """Time on the device where it has any, else on the host."""
        return self.device_ns or self.self_ns


class Profile(StoredValue):
    """Profile that a tool made of a slice of an arm.

    `iterations` and `units` were done in the profiled repetitions; `bare_ns` and `profiled_ns` are times per
    iteration of each repetition without and with the tool; `findings` are sentences for people.
    """

    schema_version: int = SCHEMA
    tool: str
    variant: str = ""
    workload: str
    unit: str
    arm: Arm
    slice: str
    iterations: int
    units: float
    bare_ns: tuple[float, ...]
    profiled_ns: tuple[float, ...] = ()
    phases: dict[str, float] = {}
    costs: tuple[Cost, ...] = ()
    facts: dict[str, float | str | None] = {}
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Tool and circumstances."""
        return f"{self.tool}, {self.variant}" if self.variant else self.tool

    @property
    def overhead(self) -> float | None:
        """Median ratio of time with the tool to time without it; None where no repetition had it."""
        pairs = list(zip(self.profiled_ns, self.bare_ns, strict=False))
        return statistics.median(with_ / without for with_, without in pairs) if pairs else None


@dataclass(frozen=True)
class Kept:
    """A profile on disk."""

    folder: Path
    profile: Profile

    @property
    def files(self) -> list[Path]:
        """What the tool wrote, to be opened."""
        return sorted(file for file in self.folder.iterdir() if file.is_file() and file.name not in OWN_FILES)


def arm_folder(folder: SweepFolder, arm: Arm) -> Path:
    """Name the folder of an arm's profiles: its label as far as addresses take it, and the start of its id.

    The ranks of an arm meet at an address below it, in which torch decodes nothing.
    """
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", arm.label)[:_LONGEST_NAME]
    return folder.profiles_dir / f"{plain}-{arm.id[:6]}"


def write_spec(folder: Path, spec: ProfileSpec) -> Path:
    """Create a profile's folder with the specification of its process; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / SPEC, row_json(spec))
    return folder / SPEC


def read_spec(file: Path) -> ProfileSpec:
    """Read the specification of a profile process.

    Raises
    ------
    RecordError
        The file is missing, damaged or of another schema version.
    """
    return _read(ProfileSpec, file)


def write_profile(folder: Path, profile: Profile) -> None:
    """Write the profile of a tool."""
    write_atomically(folder / RESULT, row_json(profile))


def read_profile(folder: Path) -> Kept:
    """Read the profile in a folder.

    Raises
    ------
    RecordError
        There is none, or it is damaged or of another schema version.
    """
    return Kept(folder, _read(Profile, folder / RESULT))


def kept_profiles(folder: SweepFolder, problems: list[str] | None = None) -> list[Kept]:
    """Read all whole profiles of a sweep, by arm and tool; `problems` names the unreadable ones."""
    found = []
    for file in sorted(folder.profiles_dir.glob(f"*/*/{RESULT}")):
        if file.parent.name.endswith(UNFINISHED):
            continue
        try:
            found.append(read_profile(file.parent))
        except RecordError as error:
            if problems is not None:
                problems.append(str(error))
    return found


def _read(row: type[AnyRow], file: Path) -> AnyRow:
    try:
        found = read_row(row, file)
    except RecordError as error:
        raise RecordError(f"{error}; profile the arm again") from error
    if found is None:
        raise RecordError(f"{file} does not exist; profile the arm again")
    return found


def overhead_text(profile: Profile) -> str:
    """Put the measured cost of profiling into words: time per iteration with and without the tool."""
    ratio = profile.overhead
    if ratio is None:
        return "its cost is not known: no repetition had both sides"
    with_, without = (statistics.median(times) for times in (profile.profiled_ns, profile.bare_ns))
    pairs = len(profile.profiled_ns)
    times = "1 pair" if pairs == 1 else f"{pairs} pairs"
    return (
        f"{ratio:.2f}x: {duration(with_)} per iteration with {profile.tool}, {duration(without)} without it"
        f" ({times})"
    )


COURSE = "memory.npz"


@dataclass(frozen=True)
class MemoryCourse:
    """Memory of one process along some iterations. Times are in ns since the slice began.

    Attributes
    ----------
    allocated_ns, allocated_bytes : [N] every change of what tensors hold: of a device all of it, of a host
        what was allocated since the slice began
    sampled_ns, reserved_bytes, host_bytes : [M] what the device's allocator holds (zero on a host) and the
        process's resident memory, at the ends of phases and at intervals between them
    iteration_ns : [I] ends of the iterations
    phase_names, phase_start_ns, phase_end_ns : [P] phases in the order of their beginning; one inside another
        is called ``outer/inner``
    """

    allocated_ns: np.ndarray
    allocated_bytes: np.ndarray
    sampled_ns: np.ndarray
    reserved_bytes: np.ndarray
    host_bytes: np.ndarray
    iteration_ns: np.ndarray
    phase_names: np.ndarray
    phase_start_ns: np.ndarray
    phase_end_ns: np.ndarray

    @property
    def on_device(self) -> bool:
        """Whether tensors lie on a device with an allocator of its own."""
        return bool(self.reserved_bytes.any())

    def phase_peaks(self) -> dict[str, int]:
        """Find the highest allocated bytes of each phase, over all iterations; the highest phase first."""
        peaks: dict[str, int] = {}
        ends = zip(self.phase_names, self.phase_start_ns, self.phase_end_ns, strict=True)
        for name, start_ns, end_ns in ends:
            first = max(0, int(np.searchsorted(self.allocated_ns, start_ns, side="right")) - 1)
            last = int(np.searchsorted(self.allocated_ns, end_ns, side="right"))
            own = self.allocated_bytes[first:last]
            peaks[str(name)] = max(peaks.get(str(name), 0), int(own.max(initial=0)))
        return dict(sorted(peaks.items(), key=lambda item: -item[1]))

    def peak_at(self) -> tuple[int, int]:
        """Find the highest allocated bytes, and when they were reached in ns."""
        if not len(self.allocated_bytes):
            return 0, 0
        place = int(self.allocated_bytes.argmax())
        return int(self.allocated_bytes[place]), int(self.allocated_ns[place])


def write_course(folder: Path, course: MemoryCourse) -> None:
    """Write the memory along a slice into a profile's folder."""
    write_arrays(folder / COURSE, asdict(course))


def read_course(folder: Path) -> MemoryCourse | None:
    """Read the memory along a slice; None where the profile has none.

    Raises
    ------
    RecordError
        The file is damaged.
    """
    if not (folder / COURSE).exists():
        return None
    arrays = read_arrays(folder / COURSE)
    if missing := [one.name for one in fields(MemoryCourse) if one.name not in arrays]:
        raise RecordError(f"{folder / COURSE} has no {missing[0]}; profile the arm again")
    return MemoryCourse(**{one.name: arrays[one.name] for one in fields(MemoryCourse)})
