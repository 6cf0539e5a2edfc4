"""What a recorder found in a region: how its marks become times, and the arrays that are kept of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perfsweep.pipelines.store.trial_files import write_iterations
from perfsweep.pipelines.trial.machine.usage import Usage

NO_TIME = -1
"""Value of a device series for an iteration whose events were not all available."""

BOUNDARY = 0
"""Code of a mark between two iterations; +c opens the phase with code c and -c closes it."""


@dataclass(frozen=True)
class Series:
    """What was recorded of a region of N iterations; all times are int64 nanoseconds.

    Attributes
    ----------
    start_ns, wall_ns : [N] start of each iteration, and the time to the next start; the last ends when the
        region does, so the walls add up to `region_ns`
    device_ns : [N] between the device's marks at the ends of each iteration, `NO_TIME` where one is missing;
        None without a device
    host_phases, device_phases : [N] for each phase; a phase inside another is named ``outer/inner`` and its
        time is part of the outer phase's. On an asynchronous device the host's waiting counts in the phase
        that blocks next, so the device's times are reported.
    region_ns, region_cpu_ns : wall time, and CPU time of the process, between the two synchronisations
    usage : what the kernel counted meanwhile
    dropped : iterations without device time
    """

    start_ns: np.ndarray
    wall_ns: np.ndarray
    device_ns: np.ndarray | None
    host_phases: dict[str, np.ndarray]
    device_phases: dict[str, np.ndarray]
    region_ns: int
    region_cpu_ns: int
    usage: Usage
    dropped: int

    @property
    def iterations(self) -> int:
        """N."""
        return len(self.wall_ns)

    def judged_ns(self, cadence: int) -> np.ndarray:
        """Times by which a region may be judged steady: the device's that could be had, else the host's.

        A host that never waits runs ahead until the device's queue is full, and only then at its speed. With
        gaps in the device's times nothing is known of whole cadences.
        """
        if self.device_ns is None:
            return self.wall_ns
        if self.dropped and cadence > 1:
            return self.device_ns[:0]
        return np.maximum(self.device_ns[self.device_ns != NO_TIME], 1)


def series_of(
    marks: np.ndarray, device_ns: np.ndarray | None, cpu_ns: int, usage: Usage, names: Sequence[str]
) -> Series:
    """Times of iterations and phases; the marks begin with a boundary and have one after each iteration.

    Parameters
    ----------
    marks : [M, 2] int64 time and code; the last is a boundary too, at the end of the region
    device_ns : [M] device time of each mark, `NO_TIME` where it has none; None without a device
    cpu_ns, usage : CPU time of the process over the region, and what the kernel counted
    names : name of the phase with code 1, 2, ...
    """
    times, codes = marks[:, 0], marks[:, 1]
    ends = _iteration_ends(np.flatnonzero(codes == BOUNDARY))
    iterations_ns, device_phases, dropped = None, {}, 0
    if device_ns is not None:
        complete = _complete(device_ns != NO_TIME, ends)
        iterations_ns = np.where(complete, np.diff(device_ns[ends]), NO_TIME)
        phases = _phase_times(device_ns, codes, ends, names)
        device_phases = {name: np.where(complete, phase, NO_TIME) for name, phase in phases.items()}
        dropped = int(np.sum(~complete))
    return Series(
        start_ns=times[ends[:-1]],
        wall_ns=np.diff(times[ends]),
        device_ns=iterations_ns,
        host_phases=_phase_times(times, codes, ends, names),
        device_phases=device_phases,
        region_ns=int(times[-1] - times[0]),
        region_cpu_ns=cpu_ns,
        usage=usage,
        dropped=dropped,
    )


def _iteration_ends(boundaries: np.ndarray) -> np.ndarray:
    """[N + 1] of the N + 2 boundaries: the last iteration ends with the region, so its lap is no end."""
    return np.delete(boundaries, -2) if len(boundaries) > 2 else boundaries[:1]


def _complete(present: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """[N] whether an iteration has all of its marks, those at both ends included."""
    missing = np.concatenate([[0], np.cumsum(~present)])
    return missing[ends[1:] + 1] == missing[ends[:-1]]


def _phase_times(
    times: np.ndarray, codes: np.ndarray, ends: np.ndarray, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """[N] time of each phase, by replaying the marks on a stack.

    A phase that is open across the end of an iteration is billed to both, each for its part.
    """
    kept = codes != BOUNDARY
    if not kept.any():
        return {}
    kept[ends] = True
    replay = _Replay(len(ends) - 1, names)
    for time_ns, code in zip(times[kept].tolist(), codes[kept].tolist(), strict=True):
        if code == BOUNDARY:
            replay.boundary(time_ns)
        elif code > 0:
            replay.open(code, time_ns)
        else:
            replay.close(-code, time_ns)
    return {path: np.array(total, np.int64) for path, total in replay.totals.items()}


class _Replay:
    """The stack of open phases, and the time billed to each in each iteration."""

    def __init__(self, iterations: int, names: Sequence[str]) -> None:
        self.totals: dict[str, list[int]] = {}
        self._names = names
        self._iterations = iterations
        self._iteration = -1
        self._stack: list[tuple[int, str]] = []
        self._since: list[int] = []

    def open(self, code: int, time_ns: int) -> None:
        name = self._names[code - 1]
        self._stack.append((code, f"{self._stack[-1][1]}/{name}" if self._stack else name))
        self._since.append(time_ns)

    def close(self, code: int, time_ns: int) -> None:
        for depth in range(len(self._stack) - 1, -1, -1):
            if self._stack[depth][0] == code:
                self._bill(depth, time_ns)
                del self._stack[depth], self._since[depth]
                return
        # No match: the phase was opened before the region began and is no part of it.

    def boundary(self, time_ns: int) -> None:
        for depth in range(len(self._stack)):
            self._bill(depth, time_ns)
        self._iteration += 1

    def _bill(self, depth: int, time_ns: int) -> None:
        path = self._stack[depth][1]
        if path not in self.totals:
            self.totals[path] = [0] * self._iterations
        self.totals[path][self._iteration] += time_ns - self._since[depth]
        self._since[depth] = time_ns


def write_regions(
    folder: Path,
    series: Sequence[Series],
    warmup_ns: list[int],
    logged: Mapping[str, np.ndarray],
    every: Mapping[str, np.ndarray],
) -> None:
    """All series of the region, regions one after the other, and those of `every` rank."""
    parts = [_arrays(part) for part in series]
    # A phase that no iteration of a part entered is unknown there.
    names = dict.fromkeys(name for part in parts for name in part)
    lacking = [np.zeros(part.iterations, np.int64) for part in series]
    arrays = {
        name: np.concatenate([part.get(name, none) for part, none in zip(parts, lacking, strict=True)])
        for name in names
    }
    arrays["warmup_wall_ns"] = np.asarray(warmup_ns, dtype=np.int64)
    offset = time.time_ns() - time.perf_counter_ns()
    arrays["epoch_ns"] = np.asarray(
        [int(arrays["start_ns"][0]) + offset] if len(arrays["start_ns"]) else [0], dtype=np.int64
    )
    arrays |= {f"log_{name}": values for name, values in logged.items()} | dict(every)
    write_iterations(folder, arrays)


def _arrays(series: Series) -> dict[str, np.ndarray]:
    arrays = {"start_ns": series.start_ns, "wall_ns": series.wall_ns}
    if series.device_ns is not None:
        arrays["device_ns"] = series.device_ns
    arrays |= {f"host_{name}": values for name, values in series.host_phases.items()}
    return arrays | {f"device_{name}": values for name, values in series.device_phases.items()}
