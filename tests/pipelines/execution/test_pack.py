"""What a pack tells its trials, how many run at once, as which attempt, and how the pack ends."""

from __future__ import annotations

import dataclasses
import os
import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loops import LOOP
from planned_sweeps import FAST as OTHER
from planned_sweeps import NAIVE as BASE
from planned_sweeps import manifest, progress, record
from planned_sweeps import pack as planned_pack
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import Child, Interrupted, ServerLost
from perfsweep.pipelines.execution.submitted import Tail
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Event, Failure, Kind, Outcome, SweepFolder, read_evidence
from perfsweep.pipelines.store.writers import Superseded
from perfsweep.pipelines.trial import layout
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


@pytest.mark.parametrize(
    ("outcome", "failure", "reason"),
    [
        (Outcome.OK, "", ""),
        (Outcome.FAILED, "ValueError", "ValueError: no room"),
        (Outcome.TIMEOUT, "TimeoutError", "no room"),
        (Outcome.UNSUPPORTED, "ConfigError", "no room"),
    ],
)
def test_a_trial_that_ended_is_an_event_and_is_kept_without_its_environment(
    built: Built, tmp_path: Path, outcome: Outcome, failure: str, reason: str
) -> None:
    failed = Failure(type=failure, message="no room") if failure else None
    own = {"round": 3, "started": 5.0, "ended": 7.5, "environment": {"a": "b"}}
    made = record(FAST.id, outcome=outcome, failure=failed, **own)
    tail = Tail(folder := SweepFolder(tmp_path), "p000")
    run = bare(built, folder=folder, progress=Progress())
    run._note(StoredTrial(tmp_path, made))
    ((found,),) = [one.values() for one in run.progress.timing["p000", 3].values()]
    assert found == StoredTrial(tmp_path, dataclasses.replace(made, environment={}))
    (said,) = tail.new()
    own = {"round": 3, "outcome": outcome, "seconds": 2.5, "reason": reason}
    own |= {"time": said.time, "arm": FAST.id, "kind": Kind.TIMING, "final": failure == "ConfigError"}
    assert said == Event(**own)


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


@pytest.mark.parametrize(("attempts", "attempt"), [({3: "x"}, 4), ({4: "x"}, 5)])
def test_a_round_that_this_attempt_has_measured_is_another_attempts(
    built: Built, attempts: dict, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = bare(built), list[Any]()
    run.progress.timing = {("p000", 1): attempts, ("p001", 2): {4: "x"}}
    monkeypatch.setattr(pack, "claim", lambda folder, own: 5)
    monkeypatch.setattr(pack, "stop_if_superseded", lambda *words: asked.append(words[1:]))
    run._renew_attempt(1)
    assert run.attempt == attempt
    assert asked == [("p000", 4)] * (attempt == 5)


def test_a_trial_is_told_what_its_kind_needs(tmp_path: Path) -> None:
    counts = [
        record(arm, Kind.COUNTING, counters={"compile_s": s}) for arm, s in ((BASE, None), (OTHER, 0.5))
    ]
    shown = [record(BASE, Kind.EVIDENCE, iteration_ns=1e7, cadence=4), *counts]
    toy = manifest(sweep={"measure": {"region_s": 2.0}})
    run = bare(SimpleNamespace(folder=SweepFolder(tmp_path), manifest=toy), progress=progress(*shown))
    run._reference, run._nodes, run._rare, run._idle = (BASE, None, {OTHER: (1, 2)}, None)
    run._servers = SimpleNamespace(seed=17, starter_of=lambda place: place)
    fast, sweep, place = toy.arm(OTHER), toy.sweep, ("p000", run.folder.cache_dir)
    own = {"round": 5, "attempt": 4, "server": 17, "iterations": 200, "rare": (1, 2), "cadence": 4}
    timing = sweep.trial_spec(fast, Kind.TIMING, *place, **own)
    assert run._spec(fast, Kind.TIMING, 5) == (timing, {})
    evidence = sweep.trial_spec(fast, Kind.EVIDENCE, *place, round=None, attempt=4, replicate=2)
    assert run._spec(fast, Kind.EVIDENCE, None, 2) == (evidence, {})
    own, theirs = (run._states(toy.arm(arm), tmp_path) for arm in (BASE, OTHER))
    assert own == str(pack.replay_dir(tmp_path)) and theirs == str(pack.replay_dir(Path()))
    kinds = (Kind.TIMING, Kind.EVIDENCE, Kind.COUNTING)
    assert [run._starter_of(OTHER, kind) for kind in kinds] == [run.folder.cache_dir, None, None]
    assert run._starter_of(BASE, Kind.TIMING) is None, "it compiles nothing"
    run._device = Device("cuda")
    assert run._starter_of(OTHER, Kind.TIMING) is None, "a process that forks must not use the driver"


PARTS = ("seeds", "results", "rest", "generation", "forget", "trainings", "courses")


@pytest.mark.parametrize("timed_parity", [False, True])
def test_a_pack_makes_what_is_needed_once_then_its_rounds_and_then_trainings_and_courses(
    timed_parity: bool,
) -> None:
    toy = manifest(packs=(planned_pack(OTHER, BASE),), sweep={"measure": {"timed_parity": timed_parity}})
    counted = record(BASE, Kind.COUNTING)
    run, done = bare(SimpleNamespace(folder=SweepFolder("x"), manifest=toy), _reference=BASE), list[Any]()
    run.progress, left = progress(counted), iter([2, 0, None])
    run._compiles = lambda arm: arm == OTHER
    run._next = lambda tried: done.append(sorted(tried)) or next(left)
    run.support = lambda arm, kind: done.append((arm.id, kind))
    run._servers = SimpleNamespace(learn=lambda place: done.append(place))
    run._feeder = SimpleNamespace(between_rounds=lambda: done.append("fed"))
    for name in [
        "share_imports",
        "_seeds",
        "_results",
        "_rest",
        "_generation",
        "_forget",
        "_trainings",
        "_courses",
    ]:
        setattr(run, name, lambda *words, name=name: done.append((name, *words)))
    run.run()
    assert done == [
        *((BASE, Kind.COUNTING), ("share_imports", Path()), (BASE, Kind.EVIDENCE)),
        *((OTHER, Kind.COUNTING), (OTHER, Kind.EVIDENCE), run.folder.cache_dir, ("_seeds",), ("_results",)),
        *([], ("_rest",), ("_generation", 2), ("_forget", 2), "fed"),
        *([2], ("_rest",), ("_generation", 0), ("_forget", 0), "fed"),
        *([0, 2], ("_trainings",), *([("_courses",)] if timed_parity else [])),
    ]


@pytest.mark.parametrize("retry", [frozenset(), frozenset({Outcome.OOM})])
def test_a_round_starts_each_arm_that_can_run_notes_what_ended_and_measures_the_others_alone(
    built: Built, retry: frozenset[Outcome], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    done, spec = list[Any](), SimpleNamespace(arm=FAST)
    trial = SimpleNamespace(folder=Path("trial"), spec=spec)

    class Round(nullcontext):
        rare, alone = {"a": (1,), "b": (2,)}, [(trial, "it does not fit")]

        def __init__(self, memory: int, timeout_s: float, turn_s: float, began: float, file: Path) -> None:
            super().__init__(self)
            done.append((memory, timeout_s, turn_s, file))

        def start(self, *words: Any) -> None:
            done.append(words)

        def run(self, rng: Any, ahead: Any) -> Any:
            done.append((rng.random(), ahead))
            yield trial, "record"

    monkeypatch.setattr(pack, "Generation", Round)
    run, measure = bare(built, retry=retry, advanced=False), built.manifest.sweep.measure
    run._rare, run._device = {"a": (9,)}, Device(memory_bytes=7)
    names = ("begin_round", "rest_ahead")
    run._servers = SimpleNamespace(**{name: lambda name=name: done.append(name) for name in names})
    run._starter_of, run._timing = lambda *words: words, lambda *words: words
    run._stop_if_asked = run._renew_attempt = lambda *words: None
    run._note, run._trial = (lambda *words, n=n: done.append((n, *words)) for n in ("note", "alone"))
    run.progress = SimpleNamespace(
        retired=lambda *words: {NAIVE.id: "bad"}, measured=lambda *words: (FAST.id, NAIVE.id)
    )
    run._generation(1)
    draw = random.Random(layout.draw("p000", 1, 4, measure.seed)).random()
    assert done == [
        *("begin_round", (7, measure.timeout_s, measure.turn_s, pack.at_work(built.folder, "p000"))),
        *(((arm.id, 1), (arm.id, Kind.TIMING)) for arm in ((FAST, NAIVE) if retry else (FAST,))),
        (draw, run._servers),
        *(("note", StoredTrial(Path("trial"), "record")), "rest_ahead", ("alone", FAST, Kind.TIMING, 1)),
    ]
    assert (run._rare, run.advanced) == ({"a": (9,), "b": (2,)}, True)
    said = f"{FAST.label}: it does not fit; it is measured by itself\n"
    assert capsys.readouterr().out == said


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
