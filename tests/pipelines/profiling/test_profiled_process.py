"""One profile process, piece by piece: how it comes to its slice, in which turns, and what it then says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perfsweep.pipelines.profiling import profiled_process
from perfsweep.pipelines.profiling.profiled_process import (
    Marks,
    Repeated,
    Walk,
    phase_totals,
    refuse_other_processes,
    slice_of,
    with_debug_log,
)
from perfsweep.pipelines.profiling.profiled_slice import Slice
from perfsweep.pipelines.profiling.tool import Measured, Tool
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.workloads.errors import ConfigError, UnsupportedHere


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


def test_steps_go_on_until_the_slice_or_as_many_before_it_as_a_tool_wants() -> None:
    workload = Counting()
    walk = Walk(workload, Slice(10, 3))  # type: ignore[arg-type]
    assert (walk.seek(0), workload.steps) == (0, 10)
    workload = Counting()
    walk = Walk(workload, Slice(10, 3))  # type: ignore[arg-type]
    assert (walk.seek(4), workload.steps) == (4, 6)
    assert (Walk(Counting(), Slice(2, 3)).seek(9)) == 2  # type: ignore[arg-type]


def test_steps_that_are_past_the_slice_repeat_it_at_the_same_place_of_a_cadence() -> None:
    workload = Counting(cadence=4)
    walk = Walk(workload, Slice(6, 3))  # type: ignore[arg-type]
    places = []
    for _ in range(3):
        walk.seek(1)
        places.append(workload.steps)
        walk.lead_in(1, HostMarks(), lambda: None)
        for _ in range(3):
            walk.step(HostMarks())
    assert places == [5, 9, 13]


class HostMarks:
    """A clock that notes nothing."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("chosen", "lead", "found", "at"),
    [(Slice(3, 2), 0, 0, 3), (Slice(3, 2), 2, 2, 1), (Slice(0, None), 5, 0, 0)],
)
def test_a_job_begins_anew_for_each_repetition(chosen: Slice, lead: int, found: int, at: int) -> None:
    workload = Counting(length=5)
    walk = Walk(workload, chosen)  # type: ignore[arg-type]
    assert (walk.seek(lead), workload.at, workload.resets) == (found, at, 0), "a fresh one is not reset"
    assert (walk.seek(lead), workload.at, workload.resets) == (found, at, 1)


def test_a_job_that_ends_before_the_slice_is_profiled_from_its_beginning_where_nobody_chose_it() -> None:
    workload = Counting(length=2)
    walk = Walk(workload, Slice(3, 4, movable=True))  # type: ignore[arg-type]
    assert walk.seek(1) == 0
    assert (walk.slice.start, walk.slice.length, workload.at) == (0, 4, 0)
    with pytest.raises(ConfigError, match="the job has 2 iterations, and the slice begins at 3"):
        Walk(Counting(length=2), Slice(3, 4)).seek(0)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the job has 0 iterations, and the slice begins at 0"):
        Walk(Counting(length=0), Slice(0, 4, movable=True)).seek(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("length", "of_slice", "lasts"), [(None, 3, 3), (5, None, 5), (5, 3, 3), (2, 3, 2), (3, 3, 3)]
)
def test_a_slice_ends_with_its_iterations_or_with_the_job(
    length: int | None, of_slice: int | None, lasts: int
) -> None:
    walk, done = Walk(Counting(length), Slice(0, of_slice)), 0  # type: ignore[arg-type]
    while walk.goes_on(done):
        walk.step(HostMarks())
        done += 1
    assert (done, walk.units()) == (lasts, 2.0 * lasts)


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
    found.run()
    return found, tool


def test_repetitions_with_and_without_alternate_so_that_neither_is_always_first() -> None:
    found, tool = repeated(Slice(5, 2))
    turns = [call if call == "without" else call[0] for call in tool.calls if call != "tick"]
    assert turns == ["without", "with", "with", "without", "without", "with"]
    assert (len(found.bare), len(found.profiled)) == (3, 3)
    assert ("with", 3, 2) in tool.calls, "it sees the iterations before the slice"
    assert tool.calls.count("tick") == 3 * (3 + 2)


def test_a_cold_slice_is_once_and_with_the_tool_or_the_bare_process() -> None:
    cold = Slice(0, 1, cold=True)
    found, tool = repeated(cold)
    assert (len(found.bare), len(found.profiled)) == (0, 1)
    assert tool.calls == [("with", 0, 1), "tick"]
    found, _ = repeated(cold, tool="bare")
    assert (len(found.bare), len(found.profiled)) == (1, 0)


def test_iterations_and_units_are_those_of_the_slice_alone() -> None:
    found, _ = repeated(Slice(5, 4))
    assert {(one.iterations, one.units) for one in (*found.bare, *found.profiled)} == {(4, 8.0)}
    assert found.measured().iterations == 3 * 4
    times = [one.ns for one in found.bare]
    assert found.measured().iteration_ns == pytest.approx(sum(times) / 12)
    assert found.bare[0].per_iteration_ns == times[0] / 4


def test_phases_are_recorded_unless_the_recorder_is_off() -> None:
    assert set(repeated(Slice(0, 4))[0].measured().phases) == {"work"}
    assert repeated(Slice(0, 4), hook="off")[0].measured().phases == {}


def test_a_tool_that_needs_phases_has_their_times_from_the_repetitions_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Noted, "needs_phases", True)
    found = repeated(Slice(0, 4), hook="off")[0]
    assert set(found.measured().phases) == {"work"}
    assert all(one.series is not None for one in found.bare)


def test_the_slice_that_a_job_moved_to_is_the_one_that_is_told() -> None:
    found, _ = repeated(Slice(9, 2, movable=True), Counting(length=5))
    assert str(found.slice) == "iterations 0:2"


def test_a_tools_own_phases_stand_in_place_of_the_recorders() -> None:
    class Own(Tool):
        def phase(self, name: str) -> Any:
            return f"its own {name}"

    marks = Marks(HostClock(), None, Own(ProfileConfig(), Path()))
    assert marks.phase("data") == "its own data"
    with Marks(HostClock(), None, Tool(ProfileConfig(), Path())).phase("data"):
        pass


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


def test_work_in_other_processes_is_refused() -> None:
    refuse_other_processes(SimpleNamespace(child_usage=lambda: None))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedHere, match="its work is done in other processes"):
        refuse_other_processes(SimpleNamespace(child_usage=lambda: 1.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "slice_", "shape", "meant"),
    [
        (False, "auto", "steps", Slice(3, 5, movable=True)),
        (True, "auto", "steps", Slice(0, 8)),
        (True, "auto", "job", Slice(0, None)),
        (False, "step", "steps", Slice(3, 1, movable=True)),
    ],
)
def test_a_slice_follows_the_options_the_tool_and_the_workload(
    samples: bool, slice_: str, shape: str, meant: Slice
) -> None:
    options = ProfileConfig(slice=slice_, wait=1, warmup=2, active=5)
    trial = SimpleNamespace(timed_iterations=6)
    spec: Any = SimpleNamespace(options=options, trial=trial)
    tool: Any = SimpleNamespace(samples=samples)
    assert slice_of(spec, SimpleNamespace(shape=shape), tool, cadence=4) == meant  # type: ignore[arg-type]


def test_without_debug_logging_nothing_is_logged(tmp_path: Path) -> None:
    spec: Any = SimpleNamespace(trial="as it is", options=ProfileConfig(debug_log="off"))
    trial, debugging = with_debug_log(object, spec)  # type: ignore[arg-type]
    assert trial == "as it is"
    with debugging(tmp_path) as log:
        assert log is None
    assert not list(tmp_path.iterdir())


def test_debug_logging_writes_what_loggers_say_and_ends(tmp_path: Path) -> None:
    class NoField:
        class Config:
            __dataclass_fields__: dict = {}

    spec: Any = SimpleNamespace(trial="as it is", options=ProfileConfig(debug_log="on"))
    before = logging.getLogger().level
    _, debugging = with_debug_log(NoField, spec)  # type: ignore[arg-type]
    with debugging(tmp_path) as log:
        logging.getLogger("a").debug("one")
        logging.getLogger("b").warning("two")
    logging.getLogger("a").error("after it")
    assert log is not None and log.note() == (
        "debug log on: the workload has no debug_log to switch on, and Python's loggers wrote 2 lines"
    )
    assert (tmp_path / "debug.log").read_text() == "one\ntwo\n"
    assert logging.getLogger().level == before


def test_a_workload_that_can_log_is_told_to_and_keeps_the_rest_of_its_configuration(tmp_path: Path) -> None:
    @dataclass
    class Config:
        debug_log: bool = False
        size: int = 1

    @dataclass
    class Trial:
        config: dict

    spec: Any = SimpleNamespace(trial=Trial({"size": 3}), options=ProfileConfig(debug_log="on"))
    trial, debugging = with_debug_log(SimpleNamespace(Config=Config), spec)  # type: ignore[arg-type]
    assert trial.config == {"size": 3, "debug_log": True}
    assert spec.trial.config == {"size": 3}
    with debugging(tmp_path) as log:
        pass
    assert log is not None and "workload.debug_log=true, and Python's loggers wrote 0 lines" in log.note()


def test_measured_is_of_the_profiled_repetitions_where_there_are_no_others() -> None:
    found, _ = repeated(Slice(0, 1, cold=True))
    assert found.measured() == Measured(
        found.profiled[0].ns, found.measured().phases, found.profiled[0].iterations
    )


@pytest.mark.parametrize(("words", "rank"), [([], 0), (["3"], 3)])
def test_a_process_profiles_what_its_file_says_as_the_rank_that_it_is(
    words: list[str], rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()
    monkeypatch.setattr(profiled_process, "read_spec", lambda file: f"read {file.name}")
    monkeypatch.setattr(profiled_process, "run", lambda *given: asked.append(given))
    assert profiled_process.main([str(tmp_path / "spec.json"), *words]) == 0
    assert asked == [("read spec.json", tmp_path, rank)]
