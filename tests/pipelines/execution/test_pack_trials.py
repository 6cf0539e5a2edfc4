"""Which trials a pack runs, in which order, and what each of them is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_sweeps import record
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.execution import pack
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome
from perfsweep.workloads.api import Device


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built") / "sweep")


def bare(built: Built, start: str = "fork", **own: Any) -> Any:
    """A pack that has no processes, of two arms and three rounds, of which nothing is finished."""
    run = object.__new__(PackRun)
    progress = SimpleNamespace(other={}, seeds={}, timing={}, retired=lambda pack, arms: [])
    progress.forget = lambda *words: None
    progress.cadence_of = lambda arm, reference: None
    progress.measured = lambda pack, number: pack.orders[number]
    given = {
        "folder": built.folder,
        "manifest": built.manifest,
        "pack": built.manifest.packs[0].model_copy(update={"start": start}),
        "retry": frozenset(),
        "attempt": 4,
        "progress": progress,
        "advanced": False,
        "_device": Device(),
        "_nodes": None,
        "_servers": SimpleNamespace(
            seed=77, starter="starter", begin_round=lambda: None, starter_of=lambda cache_dir: cache_dir
        ),
        "_idle": None,
        "_reference": NAIVE.id,
        "_rare": {},
    }
    vars(run).update(given | own)
    return run


@pytest.mark.parametrize(
    ("replicate", "outcome", "retry", "retired", "runs"),
    [
        (0, None, (), False, True),
        (0, Outcome.OK, (), False, False),
        (0, Outcome.OOM, (), False, False),
        (0, Outcome.OOM, (Outcome.OOM,), False, True),
        (0, None, (), True, False),
        (3, None, (), False, True),
    ],
)
def test_a_trial_that_is_needed_once_is_run_unless_it_is_there_or_its_arm_ends_jobs(
    replicate: int, outcome: Outcome | None, retry: tuple, retired: bool, runs: bool, built: Built
) -> None:
    run, asked = bare(built, retry=frozenset(retry), progress=Progress()), list[Any]()
    if outcome is not None:
        done = record(FAST.id, Kind.EVIDENCE, replicate=replicate, outcome=outcome)
        run.progress.add(StoredTrial(Path(), done))
    run.progress.retired = lambda pack, arms: arms if retired else []
    run._trial = lambda *words: asked.append(words)
    run.support(FAST, Kind.EVIDENCE, replicate)
    assert asked == [(FAST, Kind.EVIDENCE, None, replicate)] * runs
    assert run.advanced is runs


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
