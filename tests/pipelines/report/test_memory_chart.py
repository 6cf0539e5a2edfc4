"""The picture of memory along a slice: its lines, its phases, and whose memory it says they show."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from planned_sweeps import arm

from perfsweep.pipelines.report.pictures.memory_chart import (
    MOST_POINTS,
    PICTURE,
    arm_courses,
    chart,
    thinned,
    write_picture,
)
from perfsweep.pipelines.report.pictures.svg import NARROW, WIDE
from perfsweep.pipelines.store.profiles import Kept, MemoryCourse, Profile, write_course

MB = 10**6


def course(**arrays: Any) -> MemoryCourse:
    """Two iterations of 10 ms, whose tensors grow from nothing to 3 MB, of a process of 8 MB."""
    values: dict[str, Any] = {one.name: np.zeros(0, np.int64) for one in dataclasses.fields(MemoryCourse)}
    values |= {
        "allocated_ns": [0, 5_000_000],
        "allocated_bytes": [0, 3 * MB],
        "sampled_ns": [0, 20_000_000],
        "host_bytes": [8 * MB, 8 * MB],
        "reserved_bytes": [0, 0],
        "iteration_ns": [10_000_000, 20_000_000],
        "phase_names": np.array([], np.str_),
    }
    return MemoryCourse(**{name: np.array(value) for name, value in {**values, **arrays}.items()})


def phases(**spans: tuple[float, float]) -> dict[str, list]:
    """Phases by name, from and to in ms; two underscores stand for a phase inside another."""
    ends = [(start * 1e6, end * 1e6) for start, end in spans.values()]
    names = [name.replace("__", "/") for name in spans]
    return {
        "phase_names": names,
        "phase_start_ns": [a for a, _ in ends],
        "phase_end_ns": [b for _, b in ends],
    }


def lines(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Points of the lines that have a name, in ms and MB."""
    return {str(one.get_label()): [(float(x), float(y)) for x, y in one.get_xydata()] for one in axes.lines}


def names(axes: Axes) -> list[str]:
    return [one.get_text() for one in axes.texts]


def test_tensors_stand_above_the_process_in_ms_and_mb_with_a_line_where_each_iteration_ends() -> None:
    tensors, host = chart(course(), WIDE).axes
    assert lines(tensors)["held by tensors"] == [(0, 0), (5, 3)]
    assert [one.get_xydata().tolist() for one in host.lines][-1] == [[0, 8], [20, 8]]
    ends = [one.get_xdata()[0] for one in tensors.lines if one.get_xdata()[0] == one.get_xdata()[-1]]
    assert ends == [10], "the last one ends where the picture does"
    assert (host.get_ylabel(), host.get_xlabel()) == ("host, MB", "ms")


def test_a_device_shows_what_its_allocator_holds_and_a_host_only_what_came_since() -> None:
    tensors, _ = chart(course(reserved_bytes=[4 * MB, 5 * MB]), WIDE).axes
    assert lines(tensors)["reserved by the allocator"] == [(0, 4), (20, 5)]
    legend = tensors.get_legend()
    assert legend is not None and tensors.get_ylabel() == "MB"
    assert [one.get_text() for one in legend.get_texts()] == ["held by tensors", "reserved by the allocator"]
    tensors, _ = chart(course(), WIDE).axes
    assert tensors.get_legend() is None and tensors.get_ylabel() == "MB, since the slice began"
    assert "reserved by the allocator" not in lines(tensors)


def test_the_outermost_phases_are_shaded_in_turns_and_the_long_ones_named_in_their_middle() -> None:
    spans = phases(forward=(0, 4), forward__inner=(1, 3), short=(4, 5), backward=(5, 20))
    tensors, host = chart(course(**spans), WIDE).axes
    assert [(one.get_x(), one.get_x() + one.get_width()) for one in tensors.patches] == [
        (0, 4),
        (4, 5),
        (5, 20),
    ]
    first, second, third = (one.get_alpha() for one in tensors.patches)
    assert first == third != second and not host.patches
    assert names(tensors) == ["forward", "backward"], "a twentieth of the slice has no room for a name"
    assert [one.xy[0] for one in tensors.texts] == [2, 12.5]


@pytest.mark.parametrize(("width", "named"), [(WIDE, ["a", "b"]), (NARROW, ["b"])])
def test_a_phone_names_phases_three_times_as_long(width: int, named: list[str]) -> None:
    tensors, _ = chart(course(**phases(a=(0, 1.2), b=(2, 5.6))), width).axes
    assert names(tensors) == named


def test_a_line_of_as_many_points_as_are_drawn_is_left_as_it_is() -> None:
    sizes = np.arange(MOST_POINTS + 1)
    assert len(thinned(sizes[:-1], sizes[:-1])[1]) == MOST_POINTS
    times, drawn = thinned(sizes * 10, sizes)
    assert len(drawn) == MOST_POINTS and drawn[-1] == MOST_POINTS and (times == drawn * 10).all()


def kept(folder: Path, label: str) -> Kept:
    folder.mkdir()
    made = Profile(
        tool="memory",
        workload="w",
        unit="step",
        arm=arm("a", label),
        slice="iterations 3-4",
        iterations=2,
        units=2.0,
        bare_ns=(1.0,),
    )
    return Kept(folder, made)


def test_only_profiles_that_recorded_memory_have_a_course_and_a_picture(tmp_path: Path) -> None:
    with_it, without = kept(tmp_path / "a", "amp=bf16"), kept(tmp_path / "b", "naive")
    write_course(with_it.folder, course())
    (found,) = arm_courses([without, with_it])
    assert (found.arm, found.slice) == ("amp=bf16", "iterations 3-4")
    assert found.course.allocated_bytes.tolist() == [0, 3 * MB]
    assert write_picture(without) is None and not (without.folder / PICTURE).exists()
    picture = write_picture(with_it)
    assert picture == with_it.folder / PICTURE
    assert 'aria-label="Memory of amp=bf16"' in picture.read_text()
