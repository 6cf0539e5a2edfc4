"""One trial of a process: the same start for every arm, and one record however many ranks it has."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from planned_sweeps import spec

from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import (
    Arm,
    Kind,
    Outcome,
    TrialSpec,
    read_rank_failures,
    read_record,
    write_spec,
)
from perfsweep.pipelines.store.trial_schema import UNWRITTEN
from perfsweep.pipelines.trial import process, scene
from perfsweep.pipelines.trial.parent import Ready, Reply, Turn
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.turns import Turns
from perfsweep.workloads.api import Device, Level
from perfsweep.workloads.errors import UnsupportedHere

GIB = 2**30


def spec_of(folder: Path, kind: Kind = Kind.COUNTING, **own: Any) -> TrialSpec:
    measure = MeasureConfig(threads=1, seed=5, timeout_s=60)
    return spec(kind, **{"measure": measure, "cache_dir": str(folder / "cache"), **own})


def fails() -> dict[str, Any]:
    raise ValueError("the loss is nan")


@pytest.mark.parametrize(
    ("world", "rank", "work", "record", "rank_fails"),
    [
        (1, 0, fails, True, False),
        (2, 0, fails, False, True),
        (2, 0, lambda: {"outcome": Outcome.OK}, True, False),
        (2, 1, lambda: {"outcome": Outcome.OK}, False, False),
    ],
)
def test_the_first_rank_writes_the_record_and_any_of_several_that_fails_says_why_next_to_it(
    world: int, rank: int, work: Any, record: bool, rank_fails: bool, tmp_path: Path, capsys: Any
) -> None:
    found = process._record(spec_of(tmp_path, world=world), tmp_path, rank, work)
    assert (read_record(tmp_path) is not None) == record
    assert read_rank_failures(tmp_path) == [(Outcome.FAILED, found.failure)] * rank_fails
    if work is fails:
        assert found.failure and (found.outcome, found.failure.message) == (Outcome.FAILED, "the loss is nan")
        assert found.failure.where.startswith(f"{__file__}:")
        assert "ValueError: the loss is nan" in capsys.readouterr().err


@pytest.fixture
def put_back() -> Iterator[None]:
    threads, python, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        yield
    torch.set_num_threads(threads)
    random.setstate(python)
    np.random.set_state(numpy)


@pytest.mark.usefixtures("put_back")
def test_every_arm_starts_from_the_same_draws_and_threads(tmp_path: Path) -> None:
    def start(**own: Any) -> list[float]:
        scene._prepare_process(spec_of(tmp_path, **own), Device(), 0, tmp_path)
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    first = start()
    assert start(kind=Kind.TIMING, arm=Arm(id="b" * 16, label="other", levels={})) == first
    assert torch.get_num_threads() == 1
    others = start(replicate=1, measure=MeasureConfig(threads=2, seed=5))
    assert torch.get_num_threads() == 2
    assert all(other != one for other, one in zip(others, first, strict=True))
    assert start(measure=MeasureConfig(seed=6)) == others
    start(measure=MeasureConfig(seed=2**32 + 5))  # which NumPy alone would not take


def test_a_workload_is_told_where_it_runs_and_until_when(tmp_path: Path) -> None:
    measure = MeasureConfig(seed=5, timeout_s=60, memory_gib=2)
    spec = spec_of(tmp_path, world=4, ranks_per_node=2, meet="node7:29500", measure=measure, replicate=2)
    before_s = time.monotonic()
    told = scene._context(spec, tmp_path, Device(), 3, BufferedLog())
    assert 60 <= told.deadline - before_s <= 60 + time.monotonic() - before_s
    assert told.scratch_dir.is_dir() and told.scratch_dir.name == "rank3"
    assert told.cache_dir == tmp_path / "cache" and told.cache_dir.is_dir()
    assert (told.rank, told.world, told.node, told.local_rank, told.local_world) == (3, 4, 1, 1, 2)
    assert (told.master, told.seed, told.memory_budget) == ("node7", 7, 2 * GIB)
    alone = scene._context(spec_of(tmp_path), tmp_path, Device(), 0, BufferedLog())
    assert (alone.master, alone.world, alone.memory_budget) == ("127.0.0.1", 1, None)


LIVE = {"wandb_logging": Level("each", commit_every=4), "other": Level("on", commit_every=2)}


@pytest.mark.parametrize(
    ("levels", "kind", "rank", "every"),
    [
        (LIVE, Kind.TIMING, 0, 2),
        (LIVE, Kind.TIMING, 1, None),
        (LIVE, Kind.QUALITY, 0, None),
        ({"wandb_logging": Level("buffered")}, Kind.TIMING, 0, None),
    ],
)
def test_rows_leave_the_process_only_where_that_is_what_an_arm_measures(
    levels: dict[str, Level],
    kind: Kind,
    rank: int,
    every: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scene, "LiveLog", lambda every, folder: (every, folder.name))
    found = scene.log_of(levels, spec_of(tmp_path, kind=kind), tmp_path, rank)
    assert isinstance(found, BufferedLog) if every is None else found == (every, "scratch")


class Timed:
    """A timing that takes two turns, and notes them."""

    def __init__(self, warm: Exception | None = None, region: Exception | None = None) -> None:
        self.raised, self.region_raises, self.turns = warm, region, list[Turn]()

    def __enter__(self) -> Timed:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def warm_up(self, folder: Path) -> None:
        if self.raised:
            raise self.raised

    def ready(self) -> Ready:
        return READY

    def region(self, folder: Path, turns: Turns) -> dict[str, Any]:
        self.turns += [turns.next(), turns.next()]
        if self.region_raises:
            raise self.region_raises
        return {"outcome": Outcome.OK}


READY = Ready(taken_bytes=7, rests=True, step_ns=5, steps=9, spares=True)


class Stage:
    """A scene that measures nothing more, and notes what the host did."""

    workload, device, log = None, None, None
    host: Any = None

    def measure(self, spec: TrialSpec, measure: Any, over: Any) -> dict[str, Any]:
        found = measure()
        type(self).host = over()
        return found


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Serves what a pack says, until it hangs up: the replies."""

    def served(timing: Timed, *words: Any, rank: int = 0) -> list[Any]:
        ours, theirs = Pipe()
        for word in words:
            ours.send(word)
        (tmp_path / "scratch").mkdir()
        monkeypatch.setattr(process, "set_up", lambda *words: nullcontext(Stage()))
        monkeypatch.setattr(process, "Timing", lambda *words: timing)
        monkeypatch.setattr("os.register_at_fork", lambda **words: None)
        spec = spec_of(tmp_path, kind=Kind.TIMING)

        def run() -> None:
            with suppress(SystemExit):
                process.serve(spec, tmp_path, rank, theirs)
            theirs.close()

        ended = threading.Thread(target=run)
        ended.start()
        replies = []
        with suppress(EOFError):
            while True:
                replies.append(ours.recv())
        ended.join()
        return replies

    return served


def test_a_process_says_when_it_is_warm_and_ends_each_turn_and_at_last_its_record_is_there(
    serve: Callable[..., list[Any]], tmp_path: Path
) -> None:
    timing, turns = Timed(), [Turn(3, 1), Turn(2)]
    ready, first, over, last = serve(timing, *turns, ("the host", 90.0))
    assert (ready, first, last) == (Reply(ready=READY), Reply(), Reply())
    assert over.own_s is not None and over.own_s >= 0
    assert (timing.turns, Stage.host) == (turns, "the host")
    assert (record := read_record(tmp_path)) and record.outcome is Outcome.OK
    assert record.ended - record.started == pytest.approx(90.0, abs=1.0), "what the pack says that it took"
    assert not (tmp_path / "scratch").exists()


FORKS = """
import ctypes, os, threading
from perfsweep.pipelines.trial.parent import take_workers_along

take_workers_along()


def fork(then=lambda: None):
    if (pid := os.fork()) == 0:
        number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(number))
        print(number.value, flush=True)
        then()
        os._exit(0)
    os.waitpid(pid, 0)


fork(then=fork)
other = threading.Thread(target=fork)
other.start()
other.join()
"""


def test_a_worker_ends_with_its_arm_and_not_with_a_thread_or_a_worker_that_started_it() -> None:
    told = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True).stdout
    assert told.split() == [str(int(number)) for number in (signal.SIGKILL, signal.SIGCONT, signal.SIGCONT)]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_breaks_while_it_warms_up_replies_why(
    rank: int, serve: Callable[..., list[Any]], tmp_path: Path
) -> None:
    (reply,) = serve(Timed(warm=UnsupportedHere("needs a GPU")), rank=rank)
    assert (reply.outcome, reply.failure.message) == (Outcome.UNSUPPORTED, "needs a GPU")
    assert (tmp_path / "scratch").exists() is (rank > 0), "the first rank tidies up"


def test_one_that_breaks_in_its_turn_replies_why_and_has_a_record(
    serve: Callable[..., list[Any]], tmp_path: Path
) -> None:
    *_, last = serve(Timed(region=ValueError("mine")), Turn(3), Turn(3))
    assert (last.outcome, last.failure.message) == (Outcome.FAILED, "mine")
    assert (record := read_record(tmp_path)) and record.failure == last.failure


@pytest.mark.parametrize(("world", "fails", "status"), [(1, True, 0), (2, False, 0), (2, True, 1)])
def test_a_rank_that_fails_ends_with_a_status_so_that_no_other_waits_for_it(
    world: int, fails: bool, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(failure="why" if fails else None)
    monkeypatch.setattr(process, "run", lambda *words: found)
    file = write_spec(tmp_path, spec_of(tmp_path, world=world))
    assert process.main([str(file), "1"]) == status
    with pytest.raises(SystemExit, match=r"spec\.json"):
        process.main([str(tmp_path / "nowhere" / "spec.json")])


@pytest.mark.parametrize("place", ["run", "serve"])
def test_a_record_that_cannot_be_written_is_a_status_of_its_own(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*words: object) -> None:
        raise OSError(28, "No space left on device", "record.json")

    file = write_spec(tmp_path, spec_of(tmp_path))
    monkeypatch.setattr(process, place, full)
    monkeypatch.setattr(process, "Connection", lambda pipe: None)
    assert process.main([str(file), *(["0", "5"] if place == "serve" else [])]) == UNWRITTEN
    assert capsys.readouterr().err.startswith("what came of the trial cannot be written: [Errno 28] ")
