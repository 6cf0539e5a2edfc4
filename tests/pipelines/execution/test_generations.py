"""Generations of real processes: turns that never overlap, and every way in which an arm can fail."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Outcome, SweepFolder, TrialRecord, read_record
from perfsweep.pipelines.store.trial_files import read_iterations
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

IN_TURNS = {"rounds": 3, "iterations": 60, "turn_s": 0.003}
WORK = DesignConfig("one_at_a_time", levels={"work": ["single"]})

Prepare = Callable[[SweepCommand], PackRun]


@pytest.fixture
def prepared() -> Prepare:
    """The only pack of a sweep, ready to run in this process."""

    def prepare(command: SweepCommand) -> PackRun:
        manifest = plan.make_plan(command, Device())
        folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
        launch.prepare(folder, manifest, "")
        return PackRun(folder, manifest, manifest.packs[0])

    return prepare


def timings(run: PackRun, label: str = "baseline") -> dict[int, tuple[Path, TrialRecord]]:
    """Folders and records of an arm's rounds, of the latest attempt."""
    arm = next(arm for arm in run.manifest.arms if arm.label == label)
    found = {}
    for path, _, stage, _ in run.folder.trial_dirs(arm.id):
        if stage.startswith("r") and (record := read_record(path)):
            found[int(stage[1:])] = (path, record)
    return found


def spans(folder: Path) -> list[tuple[int, int]]:
    """Start and end of each iteration, ns of one clock for all processes."""
    arrays = read_iterations(folder)
    starts, ends = arrays["start_ns"], arrays["start_ns"] + arrays["wall_ns"]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def turns_of(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> list[str]:
    """Who worked, in order: never two at once."""
    marks = sorted([(*span, "one") for span in one] + [(*span, "other") for span in other])
    assert all(first[1] <= then[0] for first, then in itertools.pairwise(marks))
    return [who for who, _ in itertools.groupby(marks, key=lambda mark: mark[2])]


def test_arms_take_turns_in_their_regions_and_never_work_at_once(command, prepared: Prepare) -> None:
    run = prepared(command(WORK, measure=IN_TURNS))
    run.run()
    one, other = timings(run), timings(run, "work=single")
    for number in range(3):
        (here, mine), (there, its) = one[number], other[number]
        assert {mine.outcome, its.outcome} == {Outcome.OK} and mine.iterations == its.iterations == 60
        assert len(turns_of(spans(here), spans(there))) >= 4, "several turns each"


def test_a_region_is_the_sum_of_its_turns_without_what_lies_between(command, prepared: Prepare) -> None:
    run = prepared(command(WORK, measure=IN_TURNS))
    run.run()
    for folder, record in (*timings(run).values(), *timings(run, "work=single").values()):
        inside_ns = sum(end - start for start, end in spans(folder))
        assert record.units == 60 * 40 and record.reached > 60 + record.warmup_iterations, "some untimed"
        assert inside_ns <= record.region_ns < spans(folder)[-1][1] - spans(folder)[0][0]


HELPED = """
import multiprocessing, os, subprocess, sys, time
from toys.spinner import Spinner

SPIN = "import sys; sys.path[:] = sys.argv[2:]; import helped; helped.spin(sys.argv[1])"


def spin(place):
    open(place + "/" + str(os.getpid()), "w").close()
    while True:
        time.sleep(0.01)


class Helped(Spinner):
    def setup(self, config, levels, context):
        super().setup(config, levels, context)
        place, kind = os.environ["HELPERS"], os.environ["KIND"]
        if kind == "worker":
            self.helper = multiprocessing.get_context("fork").Process(target=spin, args=(place,), daemon=True)
            self.helper.start()
        elif kind == "program":
            self.helper = subprocess.Popen([sys.executable, "-c", SPIN, place, *sys.path])
        elif (parent := os.fork()) == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            spin(place)
        else:
            os.waitpid(parent, 0)

    def step(self, clock):
        time.sleep(0.003)
        super().step(clock)
"""
"""A workload of which each process has a helper that works on by itself, and never looks for its parent."""


@pytest.mark.parametrize("kind", ["worker", "daemon"])
def test_helpers_of_arms_wait_stopped_and_end_with_a_pack_that_is_killed(
    kind: str, command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KIND", kind)
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    (tmp_path / "helped.py").write_text(HELPED)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("HELPERS", str(helpers))
    toy = command(WORK, workload="helped:Helped", measure={"rounds": 3, "iterations": 5000})
    manifest = plan.make_plan(toy, Device())
    folder = SweepFolder(Path(toy.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    run = subprocess.Popen(
        [sys.executable, "-m", "perfsweep.pipelines.execution.pack", str(folder.path), "p000"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: states(helpers).count("T") == 1 and len(states(helpers)) == 2, 90), (
            "of two arms in turns exactly one has a worker that is stopped"
        )
        assert eventually(lambda: "T" not in states(helpers) or states(helpers).count("T") == 1, 5)
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    assert eventually(lambda: states(helpers) == [], 30), "stopped ones too"


def eventually(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


def states(folder: Path) -> list[str]:
    """What the processes that left their numbers do; none of those that have ended."""
    return [state(int(path.name)) for path in folder.iterdir() if runs(int(path.name))]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "Z"


def runs(pid: int) -> bool:
    return state(pid) not in "ZX"
