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
from perfsweep.pipelines.store.records import Arm, Failure, Kind, Outcome, TrialRecord
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import RecordError


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


def test_a_timed_trial_is_told_its_draw_its_length_and_how_often_counters_change(built: Built) -> None:
    run = bare(built, _idle=SimpleNamespace(step_s=0.25))
    spec, env = run._spec(FAST, Kind.TIMING, 2)
    assert (spec.round, spec.attempt, spec.server, spec.counter_s) == (2, 4, 77, 0.25)
    assert (spec.iterations, spec.world, spec.meet, env) == (None, 1, None, {})
    assert spec.measure == run.manifest.sweep.measure and Path(spec.cache_dir) == run.folder.cache_dir
    spec, _ = bare(built)._spec(FAST, Kind.EVIDENCE, None, 3)
    assert (spec.round, spec.replicate, spec.server, spec.counter_s, spec.keep) == (None, 3, None, None, None)


@pytest.mark.parametrize(
    ("replicate", "outcome", "retry", "retired", "runs"),
    [
        (0, None, (), False, True),
        (0, Outcome.OK, (), False, False),
        (0, Outcome.OOM, (), False, False),
        (0, Outcome.OOM, (Outcome.OOM,), False, True),
        (0, None, (), True, False),
        (0, None, (Outcome.OOM,), True, True),
        (3, None, (), False, True),
        (3, Outcome.OK, (), False, False),
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
    ("unfinished", "repeats", "tried", "number"),
    [([], [], set(), None), ([1, 2], [], {1}, 2), ([1], [], {1}, None), ([1, 2], [1], {1}, 1)],
)
def test_a_round_is_tried_once_unless_it_is_to_be_repeated(
    unfinished: list, repeats: list, tried: set, number: int | None, built: Built
) -> None:
    run = bare(built)
    run.progress.unfinished_rounds = lambda pack, retry: unfinished
    run.progress.to_repeat = lambda pack: repeats
    assert run._next(tried) == number


def test_what_follows_a_sweep_hears_how_each_trial_ended(built: Built, tmp_path: Path) -> None:
    run, added = bare(built), list[Any]()
    run.progress.add = added.append
    failure = Failure(type="JobOutOfMemory", message="all of it")
    own = {"arm": FAST.id, "kind": Kind.TIMING, "pack": "p000", "round": 1, "attempt": 0}
    bad = StoredTrial(
        tmp_path, TrialRecord(outcome=Outcome.OOM, failure=failure, started=2.0, ended=9.5, **own)
    )
    good = StoredTrial(tmp_path, TrialRecord(outcome=Outcome.OK, started=1.0, ended=2.0, **own))
    for found in (bad, good):
        run._note(found)
    assert added == [bad, good]
    first, second = run.folder.read_events("p000")[0]
    assert (first.arm, first.round, first.outcome, first.seconds) == (FAST.id, 1, Outcome.OOM, 7.5)
    assert (first.reason, first.final) == ("JobOutOfMemory: all of it", True)
    assert (second.reason, second.final, second.seconds) == ("", False, 1.0)


def asked_for(numbers: range) -> list[Any]:
    return [SimpleNamespace(arm=FAST, kind=Kind.COURSE, seed=number, own={}) for number in numbers]


def test_trials_of_which_only_numbers_count_run_as_many_at_once_as_there_is_room_for(built: Built) -> None:
    run, done = bare(built), list[Any]()
    run._at_once = lambda: 2
    run._begin = lambda arm, kind, number, seed: done.append(f"begins {seed}") or seed
    run._finish = lambda begun: done.append(f"ends {begun}")
    run._untimed(asked_for(range(3)))
    assert done == ["begins 0", "begins 1", "ends 0", "ends 1", "begins 2", "ends 2"]
    assert run.advanced, "a job that ends at its time limit goes on from there"


@pytest.mark.parametrize("broken", ["the second cannot begin", "the first breaks off"])
def test_what_has_begun_ends_where_another_breaks_off(
    broken: str, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, ended = bare(built), list[Any]()
    running, over = SimpleNamespace(code=lambda: None), SimpleNamespace(code=lambda: 0)
    monkeypatch.setattr(pack, "end", ended.extend)

    def begin(arm: Arm, kind: Kind, number: None, seed: int) -> Any:
        if seed and "second" in broken:
            raise RecordError("no room")
        return SimpleNamespace(children=[over, running])

    def finish(begun: Any) -> None:
        raise RecordError("no room")

    run._at_once, run._begin, run._finish = lambda: 2, begin, finish
    with pytest.raises(RecordError, match="no room"):
        run._untimed(asked_for(range(2)))
    assert ended == [running] * (1 if "second" in broken else 2)


@pytest.mark.parametrize(
    ("start", "device", "memory", "threads", "peak", "at_once"),
    [
        ("fork", "cpu", 1000, 1, 100, 4),
        ("fork", "cpu", 1000, 2, 100, 2),
        ("fork", "cpu", 1000, 1, 300, 3),
        ("fork", "cpu", 0, 1, 100, 1),
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


@pytest.mark.parametrize(
    ("retry", "measure", "forgets"),
    [((), {}, True), ((Outcome.OOM,), {}, False), ((), {"precision": 0.01}, False)],
)
def test_a_pack_forgets_rounds_unless_what_comes_next_depends_on_them(
    built: Built, retry: tuple, measure: dict, forgets: bool
) -> None:
    run, forgotten = bare(built, retry=frozenset(retry)), list[Any]()
    options = dataclasses.replace(run.manifest.sweep.measure, **measure)
    sweep = run.manifest.sweep.model_copy(update={"measure": options})
    run.manifest = run.manifest.model_copy(update={"sweep": sweep})
    run.progress.forget = lambda pack, number: forgotten.append((pack.id, number))
    run._forget(2)
    assert forgotten == [("p000", 2)] * forgets
