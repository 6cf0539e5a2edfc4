"""Memory along the iterations of a slice, as a picture of a report and as a file of a profile."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfsweep.pipelines.report.pictures import svg
from perfsweep.pipelines.report.pictures.svg import BLUE, GREY, INK, LINE, NARROW
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, read_course
from perfsweep.pipelines.units import MB

PICTURE = "memory.svg"
MOST_POINTS = 1200
"""Points of a line; of more the highest of each few is drawn."""
NAMED_SHARE = 0.06
"""Least share of the slice of a phase that is named, for each part of the width of a desk."""
RESERVED, SHADES = "#e08b27", (0.25, 0.1)


def write_picture(kept: Kept) -> Path | None:
    """Draw the memory of a profile into its folder; None where it has none."""
    if (course := read_course(kept.folder)) is None:
        return None
    file = kept.folder / PICTURE
    write_atomically(file, svg.alone(partial(chart, course), f"Memory of {kept.profile.arm.label}").encode())
    return file


def chart(course: MemoryCourse, width: int) -> Figure:
    """Draw what tensors hold, what the allocator has reserved, and below the process's resident memory."""
    figure = Figure(figsize=(width / 72, 420 / 72), dpi=72, facecolor="none")
    tensors, host = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for axes in (tensors, host):
        axes.set_facecolor("none")
        for end_ns in course.iteration_ns[:-1]:
            axes.axvline(end_ns / 1e6, color=LINE, linewidth=1)
    _shade_phases(tensors, course, width)
    _steps(tensors, course.allocated_ns, course.allocated_bytes, BLUE, "held by tensors")
    if course.on_device:
        _steps(tensors, course.sampled_ns, course.reserved_bytes, RESERVED, "reserved by the allocator")
        tensors.legend(loc="lower right")
    _steps(host, course.sampled_ns, course.host_bytes, GREY, "")
    tensors.set_ylabel("MB" if course.on_device else "MB, since the slice began")
    host.set_ylabel("host, MB")
    host.set_xlabel("ms")
    return figure


def _steps(axes: Axes, times_ns: np.ndarray, sizes: np.ndarray, colour: str, label: str) -> None:
    times_ns, sizes = thinned(times_ns, sizes)
    axes.step(times_ns / 1e6, sizes / MB, where="post", color=colour, linewidth=1.2, label=label)


def thinned(times_ns: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep at most `MOST_POINTS` points: of each few the highest, so that no peak is lost."""
    if len(sizes) <= MOST_POINTS:
        return times_ns, sizes
    starts = np.linspace(0, len(sizes), MOST_POINTS, endpoint=False).astype(int)
    parts = np.split(np.arange(len(sizes)), starts[1:])
    highest = [int(part[sizes[part].argmax()]) for part in parts]
    return times_ns[highest], sizes[highest]


def _shade_phases(axes: Axes, course: MemoryCourse, width: int) -> None:
    """Shade the outermost phases in turns, and name the ones that are long enough."""
    end_ns = max(int(course.iteration_ns[-1]) if len(course.iteration_ns) else 0, 1)
    least = NAMED_SHARE * (3 if width <= NARROW else 1)
    spans = zip(course.phase_names, course.phase_start_ns, course.phase_end_ns, strict=True)
    outer = [(str(name), start, end) for name, start, end in spans if "/" not in str(name)]
    for number, (name, start, end) in enumerate(outer):
        axes.axvspan(start / 1e6, end / 1e6, color=GREY, alpha=SHADES[number % 2], linewidth=0)
        if (end - start) / end_ns >= least:
            axes.annotate(
                name,
                ((start + end) / 2e6, 1.0),
                xycoords=("data", "axes fraction"),
                ha="center",
                va="bottom",
                color=INK,
                fontsize=9,
            )
