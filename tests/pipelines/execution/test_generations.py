"""Generations of real processes: turns that never overlap, and every way in which an arm can fail."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from measured import prepared
from waiting import until

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.store.records import Manifest, Outcome, Pack, SweepFolder, TrialRecord, read_record
from perfsweep.pipelines.store.trial_files import read_iterations

pytestmark = pytest.mark.slow

WORK = DesignConfig("one_at_a_time", levels={"work": ["single"]})


def planned(command: SweepCommand) -> tuple[SweepFolder, Manifest, Pack]:
    """A sweep that is ready to run, and its only pack."""
    folder, manifest = prepared(command)
    return folder, manifest, manifest.packs[0]


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


def test_arms_never_work_at_once_and_a_region_is_the_sum_of_its_turns_without_what_lies_between(
    command,
) -> None:
    run = PackRun(*planned(command(WORK, measure={"rounds": 3, "iterations": 60, "turn_s": 0.003})))
    run.run()
    one, other = timings(run), timings(run, "work=single")
    for number in range(3):
        (here, mine), (there, its) = one[number], other[number]
        assert {mine.outcome, its.outcome} == {Outcome.OK} and mine.iterations == its.iterations == 60
        assert len(turns_of(spans(here), spans(there))) >= 4, "several turns each"
    for folder, record in (*one.values(), *other.values()):
        inside_ns = sum(end - start for start, end in spans(folder))
        assert record.units == 60 * 40 and record.reached > 60 + record.warmup_iterations, "some untimed"
        assert inside_ns <= record.region_ns < spans(folder)[-1][1] - spans(folder)[0][0]


HELPED = """
import os, time
from toys.spinner import Spinner


class Helped(Spinner):
    def setup(self, config, levels, context):
        super().setup(config, levels, context)
        if parent := os.fork():
            os.waitpid(parent, 0)
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        open(os.environ["HELPERS"] + "/" + str(os.getpid()), "w").close()
        while True:
            time.sleep(0.01)

    def step(self, clock):
        time.sleep(0.003)
        super().step(clock)
"""
"""A workload of which each process has a helper that works on by itself, and never looks for its parent."""


def test_helpers_of_arms_wait_stopped_and_end_with_a_pack_that_is_killed(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpers = tmp_path / "helpers"
    helpers.mkdir()
    (tmp_path / "helped.py").write_text(HELPED)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("HELPERS", str(helpers))
    toy = command(WORK, workload="helped:Helped", measure={"rounds": 3, "iterations": 5000})
    folder, *_ = planned(toy)
    run = subprocess.Popen(
        [sys.executable, "-m", "perfsweep.pipelines.execution.pack", str(folder.path), "p000"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until(
            lambda: states(helpers).count("T") == 1 and len(states(helpers)) == 2,
            "two arms in turns of which exactly one has a helper that is stopped",
        )
    finally:
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    until(lambda: states(helpers) == [], "the end of all helpers, of the stopped one too")


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
