"""What a pack tells its trials, how many run at once, as which attempt, and how the pack ends."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from acted import Stage, without_processes
from loops import LOOP
from measured import prepared
from planned_sweeps import FAST as OTHER
from planned_sweeps import NAIVE as BASE
from planned_sweeps import arm, manifest, record
from planned_sweeps import pack as planned_pack
from recorded import FAST, Built, build

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import Child, Interrupted, ServerLost
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.needed_once import IdlePower
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import (
    Failure,
    Keep,
    Kind,
    Outcome,
    SweepFolder,
    read_evidence,
    replay_dir,
)
from perfsweep.pipelines.store.schema import Declared, DeclaredLevel
from perfsweep.pipelines.store.writers import Superseded
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.api import Device, Parity
from perfsweep.workloads.errors import RecordError


@pytest.fixture
def planned(command, tmp_path: Path) -> SweepFolder:
    return prepared(command(DesignConfig("ladder", levels={"slab": [2]})))[0]


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
    monkeypatch.setattr(pack, "listen_for_signals", lambda: None)
    monkeypatch.setattr(pack, "signal_heard", lambda: "")
    monkeypatch.setattr(Ended, "how", how)
    assert pack.main([str(folder.path), "p000", "oom", "timeout"]) == status
    assert capsys.readouterr().out.strip() == line.format(sweep=folder.path)
    _, _, asked, retry = Ended.asked
    assert (asked.id, retry) == ("p000", {Outcome.OOM, Outcome.TIMEOUT})


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
    run = object.__new__(PackRun)
    run._reference = "a"
    measure = MeasureConfig(iterations=asked, region_s=region_s)
    run.manifest = SimpleNamespace(sweep=SimpleNamespace(measure=measure))  # type: ignore[assignment]
    quantities = {} if loop is None else {"length": loop}
    evidence = SimpleNamespace(record=SimpleNamespace(iteration_ns=iteration_ns, quantities=quantities))
    other = {} if iteration_ns is None else {("a", Kind.EVIDENCE): evidence}
    run.progress = SimpleNamespace(other=other)  # type: ignore[assignment]
    assert run._iterations == iterations


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built") / "sweep")


def bare(built: Built, start: str = "fork", **own: Any) -> Any:
    """A pack that has no processes, and of which nothing is finished."""
    run = object.__new__(PackRun)
    given = {
        "folder": built.folder,
        "manifest": built.manifest,
        "pack": built.manifest.packs[0].model_copy(update={"start": start}),
        "attempt": 4,
        "progress": SimpleNamespace(other={}, timing={}),
        "_device": Device(),
    }
    vars(run).update(given | own)
    return run


@pytest.mark.parametrize(
    ("start", "device", "memory", "threads", "peak", "at_once"),
    [
        ("fork", "cpu", 1000, 1, 100, 4),
        ("fork", "cpu", 1000, 2, 100, 2),
        ("fork", "cpu", 1000, 1, 300, 3),
        ("fork", "cuda", 1000, 1, 100, 1),
        ("exec", "cpu", 1000, 1, 100, 1),
    ],
)
def test_as_many_trials_run_at_once_as_there_are_cores_for_their_threads_and_memory_for_the_largest(
    start: str,
    device: str,
    memory: int,
    threads: int,
    peak: int | None,
    at_once: int,
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    run = bare(built, start, _device=Device(device, memory_bytes=memory))
    measure = dataclasses.replace(built.manifest.sweep.measure, threads=threads)
    sweep = built.manifest.sweep.model_copy(update={"measure": measure})
    run.manifest = built.manifest.model_copy(update={"sweep": sweep})
    counted = record(FAST.id, Kind.COUNTING, peak_bytes=peak)
    run.progress.other[FAST.id, Kind.COUNTING] = StoredTrial(Path(), counted)
    assert run._at_once() == at_once


@pytest.mark.parametrize(("nodes", "world", "each"), [(1, 4, None), (3, 12, 4)])
def test_ranks_on_several_nodes_hear_how_many_each_has_and_where_they_meet(
    nodes: int, world: int, each: int | None
) -> None:
    device = Device("cuda", 4, "NVIDIA H100", capability=(9, 0))
    manifest = plan.single_arm(
        SweepCommand({"name": "toys.devices:Devices"}, {"parallel": "replicas"}), device
    )
    sweep = manifest.sweep.model_copy(update={"nodes": nodes})
    run = bare(
        SimpleNamespace(folder=SweepFolder(Path("sweep")), manifest=manifest),
        "exec",
        manifest=manifest.model_copy(update={"sweep": sweep}),
        _device=device,
        _nodes=SimpleNamespace(meeting_point=lambda: "n1:7") if nodes > 1 else None,
    )
    spec, _ = run._spec(manifest.arms[0], Kind.EVIDENCE, None)
    assert (spec.world, spec.ranks_per_node, spec.meet) == (world, each, "n1:7" if each else None)


ARMS = arm(BASE, "naive"), arm(OTHER, "amp=bf16", levels={"amp": "bf16"})
SHOWN = {
    ("naive", Kind.EVIDENCE): {"iteration_ns": 10**7, "cadence": 4},
    ("amp=bf16", Kind.COUNTING): {"counters": {"compile_s": 0.5}},
}
ONCE = ["naive counting 0", "naive evidence 0", "amp=bf16 counting 0", "amp=bf16 evidence 0"]
"""What each arm needs once, in the order of the trials: the baseline is first, whatever the rounds say."""


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(pack, "idle_power", lambda device: IdlePower(step_s=0.25))
    stage = without_processes(monkeypatch, Stage())
    stage.results = SHOWN
    return stage


Act = Callable[..., SweepFolder]


@pytest.fixture
def act(stage: Stage, tmp_path: Path) -> Act:
    """Runs a pack of two arms to its end, again where it has run before."""

    def act(
        *retry: str,
        rounds: int = 1,
        parity: Parity = Parity.EXACT,
        keep: Keep | None = None,
        status: int = 0,
        **measure: Any,
    ) -> SweepFolder:
        levels = DeclaredLevel(value="off"), DeclaredLevel(value="bf16", parity=parity)
        declared = Declared(unit="rows", shape="steps", checks=(), levels={"amp": levels})
        options = {"rounds": rounds, "repeats": 0, "timed_parity": False, **measure}
        sweep = {"workload": "toys.spinner:Spinner", "declared": declared, "measure": options, "keep": keep}
        folder = SweepFolder(tmp_path / "sweep")
        packs = (planned_pack(OTHER, BASE, rounds=rounds),)
        folder.write_manifest(manifest(*ARMS, sweep=sweep, packs=packs))
        stage.told.clear()
        assert pack.main([str(folder.path), "p000", *retry]) == status
        return folder

    return act


def said(folder: SweepFolder, *fields: str) -> list[tuple[Any, ...]]:
    """Fields of the events that a pack noted, in its order."""
    lines = map(json.loads, folder.events_file("p000").read_text().splitlines())
    return [tuple(line[name] for name in fields) for line in lines]


def test_a_pack_runs_once_what_each_arm_needs_and_then_its_rounds_and_leaves_records_alone(
    act: Act, stage: Stage
) -> None:
    folder = act(rounds=2, region_s=2.0)
    assert stage.order[:4] == ONCE
    assert stage.order[4:] == [f"{arm} timing {n}" for n in (0, 1) for arm in ("amp=bf16", "naive")]
    first, branch, later, its_branch = stage.servers
    assert first.started == [*(one[:-2] for one in ONCE), "naive timing"]
    assert branch.started == its_branch.started == ["amp=bf16 timing"] and later.started == ["naive timing"]
    assert {one.compiles for one in (branch, its_branch)} == {str(folder.cache_dir)}, "where it compiled"
    states = str(replay_dir(folder.path / f"trials/{BASE}/p000-evidence-a0"))
    asked = [(one.replay, one.iterations, one.cadence, one.counter_s, one.rare) for one in stage.told]
    nothing = (None,) * 5
    assert asked[:4] == [nothing, (states, *nothing[1:])] * 2
    assert asked[4:] == [*[(None, 200, 4, 0.25, None)] * 2, *[(None, 200, 4, 0.25, (3,))] * 2]
    draws = [one.server for one in stage.told]
    assert draws[:4] == [None] * 4 and draws[4] == draws[5] != draws[6] == draws[7]
    noted = said(folder, "arm", "kind", "round", "outcome", "reason", "final")
    assert noted[:2] == [(BASE, kind, None, "ok", "", False) for kind in ("counting", "evidence")]
    assert sorted(noted[4:]) == [(arm, "timing", n, "ok", "", False) for arm in (BASE, OTHER) for n in (0, 1)]
    assert {file.name for file in folder.path.glob("trials/*/*/*")} == {"record.json"}, "the rest was removed"
    assert act(rounds=2, region_s=2.0) and stage.order == [], "nothing is left to do"


FAILED = {"outcome": Outcome.FAILED, "failure": Failure(type="ValueError", message="no room\nat all")}
UNABLE = {"outcome": Outcome.UNSUPPORTED, "failure": Failure(type="Unsupported", message="no GPU")}
MISTAKE = {"outcome": Outcome.FAILED, "failure": Failure(type="ConfigError", message="width=0")}


@pytest.mark.parametrize(
    ("kind", "result", "tries", "noted"),
    [
        (Kind.TIMING, FAILED, 2, ("failed", "ValueError: no room", False)),
        (Kind.EVIDENCE, FAILED, 3, ("failed", "ValueError: no room", False)),
        (Kind.EVIDENCE, UNABLE, 0, ("unsupported", "no GPU", False)),
        (Kind.TIMING, MISTAKE, 1, ("failed", "ConfigError: width=0", True)),
    ],
    ids=["twice", "untimed", "unable", "a mistake"],
)
def test_an_arm_that_fails_is_noted_with_its_reason_and_given_up_until_it_is_to_be_tried_again(
    act: Act, stage: Stage, kind: Kind, result: dict[str, Any], tries: int, noted: tuple
) -> None:
    stage.results = SHOWN | {("amp=bf16", kind): result}
    folder = act(rounds=3)
    rounds = [f"{arm} timing {n}" for n in range(3) for arm in ("amp=bf16", "naive")]
    assert stage.order[4:] == [one for one in rounds if "naive" in one or int(one[-1]) < tries]
    found = [one for one in said(folder, "outcome", "reason", "final") if one[0] != "ok"]
    assert found == [noted] * (tries if kind is Kind.TIMING else 1)
    stage.results = {}
    act(result["outcome"].value, rounds=3)
    once = [] if kind is Kind.TIMING else ["amp=bf16 evidence 0"]
    assert stage.order == [*once, *(rounds if tries < 3 else [])], "rounds that lack it are repeated whole"


def test_an_arm_that_does_not_fit_with_the_others_is_measured_alone_and_that_is_said(
    act: Act, stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack.environment, "device_facts", lambda: Device(memory_bytes=10 * 2**30))
    stage.taken = dict.fromkeys(("naive", "amp=bf16"), 5 * 2**30)
    act()
    assert stage.order[4:] == ["amp=bf16 timing 0", "naive timing 0", "naive timing 0"]
    assert capsys.readouterr().out == (
        "naive: it takes 5.0 GiB, and the others leave 4.0; it is measured by itself\n"
    )


def test_a_disturbed_round_is_measured_again_as_another_attempt_and_no_more_often_than_asked(
    act: Act, stage: Stage
) -> None:
    stage.results = SHOWN | {("naive", Kind.TIMING): {"disturbed": ("other load",)}}
    act(rounds=2, repeats=1)
    timed = [(one.arm.label, one.round, one.attempt) for one in stage.told if one.kind is Kind.TIMING]
    assert timed == [(arm, n, a) for n, a in ((0, 0), (1, 0), (0, 1)) for arm in ("amp=bf16", "naive")]


def test_after_its_rounds_a_pack_trains_to_the_target_and_asks_for_the_numbers_that_rounds_ended_at(
    act: Act, stage: Stage, tmp_path: Path
) -> None:
    """Before them are the paired seeds of a level that draws at random, and what the user keeps."""
    stage.results = {(arm, Kind.TIMING): {"reached": 40} for arm in ("naive", "amp=bf16")}
    keep, target = Keep(folder=str(tmp_path / "kept"), iterations=3), {"target": 1.0, "target_seeds": 3}
    act(parity=Parity.STOCHASTIC, seeds=3, keep=keep, timed_parity=True, **target)
    arms = ("naive", "amp=bf16")
    seeds = [f"{arm} evidence {seed}" for seed in (1, 2) for arm in arms]
    results = [f"{arm} result 0" for arm in arms]
    assert stage.order[4:10] == [*seeds, *results]
    rounds, after = stage.order[10:12], stage.order[12:]
    assert rounds == [f"{arm} timing 0" for arm in reversed(arms)]
    trained = [f"{arm} quality {seed}" for seed in range(3) for arm in arms]
    assert after == [*trained, *(f"{arm} course 0" for arm in arms)]
    kept = [(one.keep and Path(one.keep.folder).name, one.measure.timeout_s) for one in stage.told[8:10]]
    assert kept == [
        (f"{name}-{arm[:6]}", pack.RESULT_S) for name, arm in (("naive", BASE), ("amp=bf16", OTHER))
    ]
    assert [one.numbers_at for one in stage.told[-2:]] == [(40,), (40,)]
    assert {one.replay for one in stage.told[4:8]} == {None}, "only the first seed's states are replayed"


def test_a_pack_that_is_interrupted_has_advanced_by_any_whole_round_and_any_trial_that_is_needed_once(
    act: Act, stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep, target = Keep(folder=str(tmp_path / "kept"), iterations=3), {"target": 1.0, "target_seeds": 3}
    stage.results = {(one.label, Kind.QUALITY): {"course": {10: {"last_loss": 0.5}}} for one in ARMS}
    once, results, training = [(3, 75), (1, 75)], [(1, 75)] * 2, [(1, 75)] * 5
    for patience, status in [(0, 79), *once, *results, (1, 79), (2, 75), *training, (1, 0)]:
        stage.patience = patience
        act(keep=keep, status=status, **target)
        ended = f"SIGTERM: {BEFORE if status == pack.STUCK else AFTER}\n" if status else ""
        assert capsys.readouterr().out == ended


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
