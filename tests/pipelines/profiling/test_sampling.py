"""Samples of the stack: whose time it is, and when there are too few."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.profiling.sampling import Sampling, measured_in, self_times
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.store.options import ProfileConfig

MEASURED = Measured(1.0, {}, 1)


def frame(function: str, time: float, *children: Any, file: str = "study/model.py", line: int = 7) -> Any:
    return SimpleNamespace(
        function=function,
        time=time,
        children=children,
        is_synthetic=function == "[self]",
        file_path=f"/srv/{file}",
        file_path_short=file,
        line_no=line,
    )


def session(root: Any) -> Any:
    return SimpleNamespace(root_frame=lambda: root)


def test_a_function_has_the_time_that_what_it_called_has_not() -> None:
    inner = frame("inner", 3.0, line=20)
    root = frame("main", 10.0, frame("[self]", 2.0), frame("step", 8.0, inner, frame("inner", 4.0, line=20)))
    found = [(cost.name, cost.where, cost.self_ns) for cost in self_times(session(root))]
    assert found == [
        ("inner", "study/model.py:20", 7e9),
        ("main", "study/model.py:7", 2e9),
        ("step", "study/model.py:7", 1e9),
    ]


def test_functions_without_time_of_their_own_are_left_out() -> None:
    found = self_times(session(frame("main", 3.0, frame("step", 3.0))))
    assert [cost.name for cost in found] == ["step"]
    assert self_times(session(None)) == ()


@pytest.mark.parametrize("file", ["", "<built-in>"])
def test_what_is_built_in_has_no_place(file: str) -> None:
    root = frame("sum", 3.0, file=file)
    root.file_path = file
    assert [cost.where for cost in self_times(session(root))] == [""]


def test_one_name_at_two_places_is_two_functions() -> None:
    root = frame("main", 5.0, frame("step", 3.0, line=1), frame("step", 2.0, line=2))
    assert [cost.where for cost in self_times(session(root))] == ["study/model.py:1", "study/model.py:2"]


@pytest.mark.parametrize(("last", "text"), [(None, "no time"), (SimpleNamespace(duration=0.0125), "12.5 ms")])
def test_a_session_says_how_long_it_lasted(last: Any, text: str) -> None:
    assert measured_in(last) == text


def sampled(folder: Path, samples: int | None) -> Any:
    """What the tool finds in a session of so many samples; None: no session at all."""
    tool = Sampling(ProfileConfig(tool="pyinstrument", interval_s=0.002), folder)
    if samples is None:
        return tool.finish(MEASURED)
    with tool.block(0, 1):
        pass
    assert tool._profiler.last_session is not None
    tool._profiler.last_session.sample_count = samples
    return tool.finish(MEASURED)


def test_without_a_sample_there_are_no_files(tmp_path: Path) -> None:
    found = sampled(tmp_path, None)
    assert found.notes == (
        "0 samples in no time: take more iterations, such as profile.slice=0:500, or"
        " profile.interval_s=0.0002",
    )
    assert found.facts == () and not list(tmp_path.iterdir())
    assert re.match(r"0 samples in \S+ ms: ", sampled(tmp_path, 0).notes[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("samples", "few"), [(1, True), (29, True), (30, False)])
def test_few_samples_are_said_beside_what_they_show(tmp_path: Path, samples: int, few: bool) -> None:
    found = sampled(tmp_path, samples)
    assert dict(found.facts) == {"samples": float(samples), "interval_s": 0.002}
    assert [note.partition(" in ")[0] for note in found.notes] == [f"{samples} samples"] * few
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"profile.txt", "profile.html", "profile.speedscope.json"}
