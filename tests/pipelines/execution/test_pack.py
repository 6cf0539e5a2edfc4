"""A pack waits for no import that its fork server could do, and ends with a sentence where it must."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loops import LOOP
from planned_sweeps import FAST, NAIVE, manifest, progress, record
from recorded import build

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.interruption import Interrupted
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import Child, ServerLost
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, SweepFolder, read_evidence
from perfsweep.pipelines.store.writers import Superseded
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import RecordError


@pytest.fixture
def planned(command, tmp_path: Path) -> SweepFolder:
    manifest = plan.make_plan(command(DesignConfig("ladder", levels={"slab": [2]})), Device())
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    return folder


def test_a_plan_that_was_cut_off_ends_a_pack_with_a_sentence(
    planned: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    os.truncate(planned.manifest_file, 30)
    assert pack.main([str(planned.path), "p000"]) == pack.CANNOT_READ
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{planned.manifest_file} line 1 is damaged")
    assert line.endswith("start the sweep again, which fixes that")


class Ended:
    """A pack that ends as a test says."""

    how: BaseException | None = None
    asked: tuple[Any, ...] = ()

    def __init__(self, *words: Any) -> None:
        type(self).asked = words
        self.advanced = "advanced" in str(self.how)

    def run(self) -> None:
        if self.how is not None:
            raise self.how


KEPT = "finished rounds are kept"
BEFORE = "stopped before a round was finished; the same command begins it again"
AFTER = "stopped after the last finished round; a requeue, or the same command, continues"
FULL = OSError(28, "No space left on device", "/sweep/x")


@pytest.mark.parametrize(
    ("how", "status", "line"),
    [
        (Interrupted("SIGTERM, advanced"), 75, f"SIGTERM, advanced: {AFTER}"),
        (Interrupted("SIGTERM"), 79, f"SIGTERM: {BEFORE}"),
        (ServerLost("the server ended"), 79, f"the server ended: {BEFORE}"),
        (Superseded("a later attempt runs"), 76, "a later attempt runs"),
        (RecordError("x is damaged"), 66, "x is damaged; start the sweep again, which fixes that"),
        (ClusterError("n2 is lost"), 69, f"n2 is lost; {KEPT}: start the sweep again to continue"),
        (FULL, 74, f"/sweep/x: No space left on device; {KEPT}: fix this and start the sweep again"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_pack_ends_with_a_status_and_a_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: BaseException | None,
    status: int,
    line: str,
) -> None:
    folder = build(tmp_path / "sweep").folder
    monkeypatch.setattr(pack, "PackRun", Ended)
    monkeypatch.setattr(pack.interruption, "listen", lambda: None)
    monkeypatch.setattr(pack.interruption, "heard", lambda: "")
    monkeypatch.setattr(Ended, "how", how)
    assert pack.main([str(folder.path), "p000", "oom", "timeout"]) == status
    assert capsys.readouterr().out.strip() == line.format(sweep=folder.path)
    _, _, asked, retry = Ended.asked
    assert (asked.id, retry) == ("p000", {Outcome.OOM, Outcome.TIMEOUT})


def bare(**own: Any) -> PackRun:
    """A pack that has these, and no server."""
    run = object.__new__(PackRun)
    vars(run).update(own)
    return run


@pytest.mark.parametrize(
    ("start", "device", "memory", "peaks", "threads", "at_once"),
    [
        ("fork", "cpu", 1000, (300, 100), 1, 3),  # nine tenths of the memory for all of them
        ("fork", "cpu", 1000, (None,), 1, 8),
        ("fork", "cpu", 1000, (100,), 3, 2),
        ("fork", "cpu", 1000, (950,), 1, 1),
        ("fork", "cpu", 0, (100,), 1, 1),
        ("fork", "cuda", 1000, (100,), 1, 1),
        ("exec", "cpu", 1000, (100,), 1, 1),
    ],
)
def test_as_many_trials_without_times_run_at_once_as_cores_and_memory_allow(
    start: str, device: Any, memory: int, peaks: tuple, threads: int, at_once: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    made = [record(str(number), Kind.EVIDENCE, peak_bytes=peak) for number, peak in enumerate(peaks)]
    run = bare(_device=Device(device, 0, "", memory), progress=progress(*made))
    run.pack, run.manifest = SimpleNamespace(start=start), manifest(sweep={"measure": {"threads": threads}})  # type: ignore[assignment]
    assert run._at_once() == at_once


def test_a_trial_is_told_what_its_kind_needs(tmp_path: Path) -> None:
    counts = [
        record(arm, Kind.COUNTING, counters={"compile_s": s}) for arm, s in ((NAIVE, None), (FAST, 0.5))
    ]
    shown = [record(NAIVE, Kind.EVIDENCE, iteration_ns=1e7, cadence=4), *counts]
    run = bare(manifest=manifest(sweep={"measure": {"region_s": 2.0}}), folder=SweepFolder(tmp_path))
    run.pack, run.attempt, run._reference, run._nodes = run.manifest.packs[0], 3, NAIVE, None
    run.progress, run._rare, run._idle = progress(*shown), {FAST: (1, 2)}, None
    run._servers = SimpleNamespace(seed=17, starter_of=lambda place: place)  # type: ignore[assignment]
    fast = run.manifest.arm(FAST)
    sweep, place = run.manifest.sweep, ("p000", run.folder.cache_dir)
    own = {"round": 5, "attempt": 3, "server": 17, "iterations": 200, "rare": (1, 2), "cadence": 4}
    timing = sweep.trial_spec(fast, Kind.TIMING, *place, **own)
    assert run._spec(fast, Kind.TIMING, 5) == (timing, {})
    evidence = sweep.trial_spec(fast, Kind.EVIDENCE, *place, round=None, attempt=3, replicate=2)
    assert run._spec(fast, Kind.EVIDENCE, None, 2) == (evidence, {})
    own, theirs = (run._states(run.manifest.arm(arm), tmp_path) for arm in (NAIVE, FAST))
    assert own == str(pack.replay_dir(tmp_path)) and theirs == str(pack.replay_dir(Path()))
    run._device, kinds = Device(), (Kind.TIMING, Kind.EVIDENCE, Kind.COUNTING)
    assert [run._starter_of(FAST, kind) for kind in kinds] == [run.folder.cache_dir, None, None]
    assert run._starter_of(NAIVE, Kind.TIMING) is None, "it compiles nothing"
    run._device = Device("cuda")
    assert run._starter_of(FAST, Kind.TIMING) is None, "a process that forks must not use the driver"
    failure = Failure(type="E", message="m")
    for outcome, reason in (("oom", "E: m"), ("failed", "E: m"), ("unsupported", "m"), ("timeout", "m")):
        assert pack._reason(record(FAST, outcome=Outcome(outcome), failure=failure)) == reason


@pytest.mark.parametrize(
    ("asked", "region_s", "iteration_ns", "loop", "iterations"),
    [
        (None, 1.0, 1e7, None, 100),
        (None, 1.0, 1e7, 299.0, 99),
        (None, 1.0, 7e9, None, 1),
        (None, 60.0, 1e6, None, 20_000),
        (None, 1.0, None, None, None),
    ],
)
def test_a_region_of_seconds_has_the_iterations_that_evidence_tells_and_a_third_of_a_loop_at_most(
    asked: int | None, region_s: float, iteration_ns: float | None, loop: float | None, iterations: int | None
) -> None:
    """A trial rounds them up to a cadence; more than some ten thousands are hardly kept one by one."""
    run = bare(_reference="a")
    measure = MeasureConfig(iterations=asked, region_s=region_s)
    run.manifest = SimpleNamespace(sweep=SimpleNamespace(measure=measure))  # type: ignore[assignment]
    quantities = {} if loop is None else {"length": loop}
    evidence = SimpleNamespace(record=SimpleNamespace(iteration_ns=iteration_ns, quantities=quantities))
    other = {} if iteration_ns is None else {("a", Kind.EVIDENCE): evidence}
    run.progress = SimpleNamespace(other=other)  # type: ignore[assignment]
    assert run._iterations == iterations


@pytest.mark.slow
def test_a_trial_that_ended_well_is_a_folder_and_two_files(planned: SweepFolder) -> None:
    assert pack.main([str(planned.path), "p000"]) == 0
    trials = {path: {file.name for file in path.iterdir()} for path in planned.path.glob("trials/*/*")}
    assert trials and all("record.json" in names and len(names) <= 2 for names in trials.values()), trials
    assert pack.main([str(planned.path), "p000"]) == 0, "what is left is all that a second start reads"
    assert {*planned.path.glob("trials/*/*")} == {*trials}


@pytest.mark.slow
def test_a_specification_that_was_damaged_before_its_trial_read_it_blames_no_arm(
    planned: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ForkServer.start

    def damage(server: ForkServer, spec_file: Path, *rest: Any) -> list[Child]:
        spec_file.write_text(spec_file.read_text()[:40])
        return start(server, spec_file, *rest)

    monkeypatch.setattr(ForkServer, "start", damage)
    assert pack.main([str(planned.path), "p000"]) == pack.CANNOT_READ
    (line,) = capsys.readouterr().out.splitlines()
    (file,) = planned.path.glob("trials/*/*/spec.json")
    assert line.startswith(f"{file} is damaged")
    assert line.endswith("start the sweep again, which fixes that")
    assert not file.with_name("record.json").exists()
    (said,) = file.with_name("log.txt").read_text().splitlines()
    assert line.startswith(said)


SCRIPT = "import os, scaled_by\n" + LOOP.replace(".square()", ".square().mul(scaled_by.SCALE)")


@pytest.mark.workloads
def test_a_script_that_is_edited_or_deleted_while_jobs_wait_is_measured_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "scaled_by.py").write_text("SCALE = 1.0")
    measure = MeasureConfig(evidence_iterations=4, counting_iterations=4)
    command = SweepCommand(workload={"name": "script", "path": "train.py"}, measure=measure)
    manifest = plan.single_arm(command, Device())
    sweep = SweepFolder(tmp_path / "runs" / "one")
    launch.prepare(sweep, manifest, "")
    (folder / "train.py").unlink()
    (folder / "scaled_by.py").write_text("SCALE = 0.0")
    for name, value in code_snapshot.sources_env(sweep.code_dir, manifest.sweep.code).items():
        monkeypatch.setenv(name, value)  # as jobs have it

    trial = PackRun(sweep, manifest, manifest.packs[0]).again(manifest.arms[0], Kind.EVIDENCE)

    assert trial.record.outcome is Outcome.OK, trial.record.failure
    assert np.all(read_evidence(trial.folder).tensors["losses"] > 0)
