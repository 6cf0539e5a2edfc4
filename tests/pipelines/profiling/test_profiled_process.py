"""One profile process, piece by piece: its tool and slice, in which turns, and what it then says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocks import FakeClock

from perfsweep.pipelines.profiling import tool as profiling
from perfsweep.pipelines.profiling.profiled_process import Repeated, Walk, _debugging, phase_totals
from perfsweep.pipelines.profiling.tool import Measured, Slice, Tool, refuse_slice, slice_of
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.workloads.errors import ConfigError


class Counting:
    """A workload whose job has `length` iterations of two units; it never ends without one."""

    def __init__(self, length: int | None = None, cadence: int = 1) -> None:
        self.shape = "steps" if length is None else "job"
        self.length, self.cadence = length, cadence
        self.at = self.steps = self.resets = 0

    def step(self, clock: Any) -> None:
        self.at += 1
        self.steps += 1
        with clock.phase("work"):
            pass

    def done(self) -> bool:
        return self.length is not None and self.at >= self.length

    def reset(self) -> None:
        self.at, self.resets = 0, self.resets + 1

    def progress(self) -> float:
        return 2.0 * self.steps


def test_a_job_that_ends_before_the_slice_is_profiled_from_its_beginning_where_nobody_chose_it() -> None:
    workload = Counting(length=2)
    walk = Walk(workload, Slice(3, 4, movable=True))  # type: ignore[arg-type]
    assert walk.seek(1) == 0
    assert (walk.slice.start, walk.slice.length, workload.at, workload.resets) == (0, 4, 0, 1)
    with pytest.raises(ConfigError, match="the job has 2 iterations, and the slice begins at 3"):
        Walk(Counting(length=2), Slice(3, 4)).seek(0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the job has 0 iterations, and the slice begins at 0"):
        Walk(Counting(length=0), Slice(0, 4, movable=True)).seek(0)  # type: ignore[arg-type]


class Noted(Tool):
    """Notes what it is asked for."""

    watches_before = True

    def __init__(self, options: ProfileConfig) -> None:
        super().__init__(options, Path())
        self.calls = list[Any]()

    @contextmanager
    def resting(self) -> Iterator[None]:
        self.calls.append("without")
        yield

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Any]:
        self.calls.append(("with", lead, length))
        yield lambda: self.calls.append("tick")


def repeated(chosen: Slice, workload: Any = None, **options: Any) -> tuple[Repeated, Noted]:
    config = ProfileConfig(**{"tool": "torch", "wait": 1, "warmup": 2, "repeats": 3, **options})
    tool = Noted(config)
    scene: Any = SimpleNamespace(
        workload=workload or Counting(), device=SimpleNamespace(type="cpu"), log=BufferedLog()
    )
    found = Repeated(scene, chosen, tool, SimpleNamespace(options=config))  # type: ignore[arg-type]
    found._clock = FakeClock(time_ns=10**12, tick_ns=1000)
    found.run()
    return found, tool


def test_repetitions_with_and_without_alternate_so_that_neither_is_always_first() -> None:
    found, tool = repeated(Slice(5, 2), work := Counting())
    turns = [call if call == "without" else call[0] for call in tool.calls if call != "tick"]
    assert turns == ["without", "with", "with", "without", "without", "with"]
    assert found.measured() == Measured(4000.0, {"work": 1000.0}, 6)
    assert (len(found.bare), len(found.profiled)) == (3, 3)
    assert ("with", 3, 2) in tool.calls, "it sees the iterations before the slice"
    assert tool.calls.count("tick") == 3 * (3 + 2)
    told = [(block.iterations, block.units, block.ns) for block in (*found.bare, *found.profiled)]
    # Looks at the clock: at both ends of two phases, after each iteration, at the stop, and at the end.
    assert told == [(2, 4.0, 8000)] * 6
    assert work.steps == 5 + 3 * 2 + 3 * (3 + 2), "each begins where the slice does"


def test_a_cold_slice_is_once_and_with_the_tool_or_the_bare_process() -> None:
    cold = Slice(0, 1, cold=True)
    found, tool = repeated(cold)
    assert (len(found.bare), len(found.profiled)) == (0, 1)
    assert tool.calls == [("with", 0, 1), "tick"]
    found, _ = repeated(cold, tool="bare")
    assert (len(found.bare), len(found.profiled)) == (1, 0)


def test_a_tool_that_needs_phases_has_their_times_from_the_repetitions_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Noted, "needs_phases", True)
    found = repeated(Slice(0, 4), hook="off")[0]
    assert set(found.measured().phases) == {"work"}
    assert all(one.series is not None for one in found.bare)


def series(host: dict[str, list[int]], device: dict[str, list[int]]) -> Any:
    return SimpleNamespace(
        host_phases={name: np.array(times) for name, times in host.items()},
        device_phases={name: np.array(times) for name, times in device.items()},
    )


@pytest.mark.parametrize(
    ("found", "totals"),
    [
        (None, {}),
        (series({"a": [1, 2]}, {}), {"a": 3.0}),
        (series({"a": [1, 2], "b": [1, 1]}, {"a": [4, 5]}), {"a": 9.0, "b": 2.0}),
        (series({"a": [1, 4]}, {"a": [4, -1]}), {"a": 5.0}),
    ],
    ids=["no recorder", "host", "device", "not all of it seen there"],
)
def test_a_phase_takes_what_the_device_says_where_all_of_it_was_seen(found: Any, totals: dict) -> None:
    assert phase_totals(found) == totals


def test_what_debug_logging_changed_is_noted_with_the_lines_that_were_written(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = root.level, root.handlers.copy()
    with _debugging(tmp_path, by_workload=True) as log:
        logging.getLogger("mine").debug("a line")
    assert log.note() == "debug log on: workload.debug_log=true, and Python's loggers wrote 1 lines"
    assert "a line" in (tmp_path / "debug.log").read_text()
    assert (root.level, root.handlers) == before


def test_a_tool_whose_package_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "find_spec", lambda name: None)
    refused = [tool for tool in profiling.NAMES if profiling.refusal(tool, "step")]
    assert refused == ["pyinstrument"]
    assert "needs the package pyinstrument" in (profiling.refusal("pyinstrument", "step") or "")


def test_a_tool_says_which_iterations_it_wants(tmp_path: Path) -> None:
    wants = {}
    for name in (profiling.BARE, *profiling.NAMES):
        tool = profiling.make(ProfileConfig(tool=name), tmp_path)
        flags = ("samples", "watches_before", "needs_phases")
        wants[name] = " ".join(flag for flag in flags if getattr(tool, flag))
    own = {"pyinstrument": "samples", "torch": "watches_before", "roofline": "needs_phases"}
    assert wants == {name: own.get(name, "") for name in wants}


TRAINING, FIT = ("steps", 4, 6), ("job", 1, 6)
"""Shape and cadence of a workload, and iterations that sampling needs."""

MEANT = [
    ("step", False, TRAINING, Slice(2, 1, movable=True)),
    ("first", True, TRAINING, Slice(0, 1, cold=True)),
    ("5:9", True, TRAINING, Slice(5, 4)),
    ("job", True, FIT, Slice(0, None)),
    ("auto", True, TRAINING, Slice(0, 8)),  # whole cadences
    ("auto", True, FIT, Slice(0, None)),
    ("auto", False, TRAINING, Slice(2, 3, movable=True)),
    ("auto", False, FIT, Slice(2, 3, movable=True)),
]


@pytest.mark.parametrize(("text", "samples", "here", "meant"), MEANT, ids=str)
def test_a_slice_means_iterations(text: str, samples: bool, here: Any, meant: Slice) -> None:
    assert slice_of(ProfileConfig(slice=text, wait=1, warmup=1, active=3), samples, *here) == meant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "=x is unknown; choose from: auto, step, job, first, or"),
        ("1:", "unknown"),
        ("3:3", "=3:3 is empty: a range ends after"),
        ("job", "=job: this workload trains for ever"),
    ],
)
def test_what_is_no_slice_of_a_workload_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"profile.slice.*{says}"):
        refuse_slice(text, "steps")
