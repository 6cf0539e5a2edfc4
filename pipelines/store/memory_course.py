"""Memory along a slice of a profile, as `memory.npz` in the profile's folder keeps it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from perfsweep.pipelines.store.files import read_arrays, write_arrays
from perfsweep.workloads.errors import RecordError

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
