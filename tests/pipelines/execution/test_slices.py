"""Arms that take turns within a round, slice by slice of their timed regions, in processes of that round."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import LEAST_ITERATIONS, PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder
from perfsweep.pipelines.store.trial_files import read_iterations
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

SLICED = {"slices": 4, "iterations": 8, "rounds": 3}
WORK = DesignConfig("one_at_a_time", levels={"work": ["single"]})

Ran = tuple[PackRun, dict[str, list[StoredTrial]]]


@pytest.fixture
def ran() -> Callable[[SweepCommand], Ran]:
    """The only pack of a sweep, run in this process, and its timing trials by arm."""

    def run(command: SweepCommand) -> Ran:
        manifest = plan.make_plan(command, Device())
        folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
        launch.prepare(folder, manifest, "")
        pack = PackRun(folder, manifest, manifest.packs[0])
        pack.run()
        progress = read_progress(folder, manifest)
        labels = {arm.id: arm.label for arm in manifest.arms}
        trials = {
            label: [trial for number in range(3) for trial in progress.used(pack.pack, number)
                    if trial.record.arm == arm]
            for arm, label in labels.items()
        }  # fmt: skip
        return pack, trials

    return run


def spans(trial: StoredTrial) -> list[tuple[int, int]]:
    """Start and end of each iteration, ns of one clock for all processes."""
    arrays = read_iterations(trial.folder)
    starts, ends = arrays["start_ns"], arrays["start_ns"] + arrays["wall_ns"]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def test_two_arms_alternate_slice_by_slice_and_never_work_at_once(command, ran) -> None:
    _, trials = ran(command(WORK, measure=SLICED))
    for one, other in zip(*trials.values(), strict=True):
        marks = sorted([(*span, "one") for span in spans(one)] + [(*span, "other") for span in spans(other)])
        assert all(marks[n][1] <= marks[n + 1][0] for n in range(len(marks) - 1))
        turns = [mark[2] for n, mark in enumerate(marks) if n == 0 or marks[n - 1][2] != mark[2]]
        assert len(turns) == 8, "four slices of each arm, in turns"
        assert len(marks) == 16


def test_a_region_is_the_sum_of_its_slices_without_what_lies_between(command, ran) -> None:
    _, trials = ran(command(WORK, measure=SLICED))
    for trial in (trial for arm in trials.values() for trial in arm):
        record, inside_ns = trial.record, sum(end - start for start, end in spans(trial))
        assert record.outcome is Outcome.OK and record.generation is None and record.iterations == 8
        assert record.units == 8 * 40 and record.reached == 8 + record.warmup_iterations
        assert inside_ns <= record.region_ns < spans(trial)[-1][1] - spans(trial)[0][0]


def test_whole_jobs_are_not_cut_and_follow_one_another(
    command, ran, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = DesignConfig("one_at_a_time", levels={"pause_ms": [1]})
    _, trials = ran(command(jobs, workload="toys.jobs:Countdown", measure=SLICED))
    assert "cannot wait in the middle of a turn" in capsys.readouterr().out
    for one, other in zip(*trials.values(), strict=True):
        assert {one.record.outcome, other.record.outcome} == {Outcome.OK}
        (first, last), (begin, end) = ((spans(trial)[0][0], spans(trial)[-1][1]) for trial in (one, other))
        assert last <= begin or end <= first


def test_an_arm_that_is_killed_in_its_slices_fails_and_the_other_goes_on(command, ran) -> None:
    late = DesignConfig("one_at_a_time", levels={"trouble": ["fourth_turn"]})
    _, trials = ran(command(late, measure={**SLICED, "iterations": 80}))
    assert {one.record.outcome for one in trials["baseline"]} == {Outcome.OK}
    assert Outcome.FAILED in {one.record.outcome for one in trials["trouble=fourth_turn"]}


def test_a_region_asked_for_in_seconds_has_as_many_iterations_as_the_reference_does_in_them(
    command, ran
) -> None:
    pack, trials = ran(command(WORK, measure={"rounds": 3, "region_s": 0.05}))
    (evidence,) = (
        one.record
        for (arm, kind), one in pack.progress.other.items()
        if kind is Kind.EVIDENCE and arm == pack._reference
    )
    assert evidence.iteration_ns is not None
    wanted = max(LEAST_ITERATIONS, math.ceil(0.05e9 / evidence.iteration_ns))
    assert {trial.record.iterations for arm in trials.values() for trial in arm} == {wanted}
