"""How many trials a pack runs at once, and as which attempt."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_sweeps import record
from recorded import FAST, Built, build

from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import pack
from perfsweep.pipelines.execution.events import Tail
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan.plan import single_arm
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Event, Failure, Kind, Outcome, SweepFolder
from perfsweep.workloads.api import Device


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
    manifest = single_arm(SweepCommand({"name": "toys.devices:Devices"}, {"parallel": "replicas"}), device)
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
