"""Tools that sample stacks and trace operators: whose time it is, and when there is too little to tell."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perfsweep.pipelines.profiling.sampling import Sampling, self_times
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.profiling.tracing import TRACE, Tracing
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


@pytest.mark.parametrize("stacks", [False, True])
def test_a_trace_holds_pythons_calls_where_they_are_asked_for(tmp_path: Path, stacks: bool) -> None:
    tool = Tracing(ProfileConfig(tool="torch", stacks=stacks), tmp_path)
    with tool.block(0, 1) as tick:
        torch.ones(4)
        tick()
    times = [cost.self_ns for cost in tool.finish(MEASURED).costs]
    assert len(times) > 1 and times == sorted(times, reverse=True), "the longest first"
    with gzip.open(tmp_path / TRACE) as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("cat") == "python_function" for event in events) is stacks
