"""Which trials a pack runs, in which order, and what each of them is told."""

from __future__ import annotations

import dataclasses
import random
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planned_sweeps import record
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.execution import pack
from perfsweep.pipelines.execution.generation import Trial
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Arm, Failure, Keep, Kind, Outcome, TrialRecord
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


LEVELS = {"amp": SimpleNamespace(env={"A": "1"}), "slab": SimpleNamespace(env={"B": "2"})}


class Workloads:
    """Two processes for each device, and variables of its levels."""

    @staticmethod
    def levels_of(levels: Any) -> Any:
        return LEVELS

    @staticmethod
    def processes(levels: Any, device: Device) -> int:
        return 2 * device.count


def test_a_timed_trial_is_told_its_draw_its_length_and_how_often_counters_change(built: Built) -> None:
    run = bare(built, _idle=SimpleNamespace(step_s=0.25))
    spec, env = run._spec(FAST, Kind.TIMING, 2)
    assert (spec.round, spec.attempt, spec.server, spec.counter_s) == (2, 4, 77, 0.25)
    assert (spec.iterations, spec.world, spec.meet, env) == (None, 1, None, {})
    assert spec.measure == run.manifest.sweep.measure and Path(spec.cache_dir) == run.folder.cache_dir
    spec, _ = bare(built)._spec(FAST, Kind.EVIDENCE, None, 3)
    assert (spec.round, spec.replicate, spec.server, spec.counter_s, spec.keep) == (None, 3, None, None, None)


@pytest.mark.parametrize(
    ("compile_s", "kind", "device", "knows"),
    [
        (2.0, Kind.TIMING, "cpu", True),
        (2.0, Kind.COURSE, "cpu", True),
        (2.0, Kind.EVIDENCE, "cpu", False),
        (2.0, Kind.COUNTING, "cpu", False),
        (2.0, Kind.TIMING, "cuda", False),
        (0.0, Kind.TIMING, "cpu", False),
        (None, Kind.TIMING, "cpu", False),
    ],
)
def test_trials_of_an_arm_that_was_counted_to_compile_start_where_the_compiler_is_known(
    compile_s: float | None, kind: Kind, device: str, knows: bool, built: Built
) -> None:
    run = bare(built, _device=Device(device))
    counted = record(FAST.id, Kind.COUNTING, counters={"compile_s": compile_s})
    run.progress.other[FAST.id, Kind.COUNTING] = StoredTrial(Path(), counted)
    assert run._starter_of(FAST.id, kind) == (run.folder.cache_dir if knows else None)
    assert run._starter_of(NAIVE.id, kind) is None


def test_what_is_taken_home_may_take_long_and_has_a_folder(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Keep(folder="kept/amp", iterations=9)
    monkeypatch.setattr(pack, "kept_folder", lambda manifest, arm: keep if arm == FAST else None)
    spec, _ = bare(built)._spec(FAST, Kind.RESULT, None)
    assert spec.keep == keep and spec.measure.timeout_s == pack.RESULT_S > 86400


def test_ranks_of_several_nodes_are_told_where_they_meet_and_fork_starts_one_process(built: Built) -> None:
    nodes = SimpleNamespace(meeting_point=lambda: "n1:29500")
    run = bare(built, "exec", _nodes=nodes, _cls=Workloads, _device=Device("cuda", 3))
    sweep = run.manifest.sweep.model_copy(update={"nodes": 2, "placement": ""})
    run.manifest = run.manifest.model_copy(update={"sweep": sweep})
    spec, env = run._spec(FAST, Kind.COUNTING, None)
    assert (spec.world, spec.meet, env) == (12, "n1:29500", {"A": "1", "B": "2"}), "of the GPUs of both nodes"
    assert spec.ranks_per_node == sweep.ranks_per_node(12)
    alone, _ = bare(built, "exec", _cls=Workloads)._spec(FAST, Kind.COUNTING, None)
    assert (alone.world, alone.meet, alone.ranks_per_node) == (2 * Device().count, None, None)
    forked = bare(built, _cls=Workloads, _nodes=nodes)
    assert forked._process_of(FAST) == (1, {})


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


class _Reasons(list):
    def append(self, trial: Any) -> None:
        super().append((trial, "too much memory"))


class Generation:
    """Arms that take turns, but for one that cannot."""

    started: list[Any]
    cannot = ""

    def __init__(self, *words: Any) -> None:
        self.started.append(words)
        self.trials: list[Any] = []
        self.alone: Any = _Reasons()
        self.rare = {FAST.id: (len(self.started),)}

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def start(self, trial: Trial, starter: object) -> None:
        self.started.append((trial.spec.arm.id, trial.spec.round))
        (self.alone if trial.spec.arm.id == self.cannot else self.trials).append(trial)

    def run(self, rng: random.Random, ahead: object) -> Any:
        self.started.append(rng.random())
        for trial in self.trials:
            yield trial, TrialRecord.of(trial.spec, 0.0, outcome=Outcome.OK)


@pytest.mark.parametrize(("retry", "arms"), [((), [FAST.id]), ((Outcome.OOM,), [NAIVE.id, FAST.id])])
def test_arms_of_a_round_start_in_its_order_and_take_turns(
    retry: tuple, arms: list[str], built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, noted, draws = bare(built, retry=frozenset(retry)), list[Any](), list[int]()
    run.progress.retired = lambda pack, arms: [NAIVE.id]
    run._servers.begin_round = lambda: draws.append(1)
    run._stop_if_asked = lambda: None
    run._note = lambda found: noted.append((found.record.arm, found.record.round, found.folder.exists()))
    monkeypatch.setattr(Generation, "started", [], raising=False)
    monkeypatch.setattr(pack, "Generation", Generation)
    run._generation(2)
    memory, measure = run._device.memory_bytes, run.manifest.sweep.measure
    begun, *started, drawn = Generation.started
    assert begun[:-1] == (memory, measure.timeout_s, measure.turn_s)
    assert started == [(arm, 2) for arm in run.pack.orders[2] if arm in arms]
    assert [(arm, number) for arm, number, _ in noted] == started
    assert (run.advanced, len(draws)) == (True, 1)
    run._generation(2)
    assert Generation.started[-1] == drawn, "the order of turns is drawn from what the round is"
    run._generation(1)
    assert Generation.started[-1] != drawn


def test_what_the_first_warm_up_of_an_arm_told_of_rare_work_is_known_to_its_later_trials(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bare(built)
    run._stop_if_asked = lambda: None
    run._note = lambda found: None
    monkeypatch.setattr(Generation, "started", [], raising=False)
    monkeypatch.setattr(pack, "Generation", Generation)
    assert run._spec(FAST, Kind.TIMING, 1)[0].rare is None
    for number in (0, 1):
        run._generation(number)
    assert run._spec(FAST, Kind.TIMING, 1)[0].rare == (1,)
    assert run._spec(NAIVE, Kind.TIMING, 1)[0].rare is None


def test_an_arm_that_cannot_take_turns_is_measured_after_the_others(
    built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, done = bare(built), list[Any]()
    run._stop_if_asked = lambda: None
    run._note = lambda found: done.append((found.record.arm, "in turns"))
    run._trial = lambda arm, kind, number: done.append((arm.id, kind, number))
    run._servers.rest_ahead = lambda: done.append("the next server rests")
    monkeypatch.setattr(Generation, "started", [], raising=False)
    monkeypatch.setattr(Generation, "cannot", FAST.id)
    monkeypatch.setattr(pack, "Generation", Generation)
    run._generation(1)
    assert done == [(NAIVE.id, "in turns"), "the next server rests", (FAST.id, Kind.TIMING, 1)]
    assert run.advanced
    assert capsys.readouterr().out == f"{FAST.label}: too much memory; it is measured by itself\n"


def test_evidence_of_an_arm_replays_what_the_reference_kept(built: Built, tmp_path: Path) -> None:
    run = bare(built)
    assert run._states(FAST, tmp_path / "own") is None
    kept = run._states(NAIVE, tmp_path / "reference")
    assert kept is not None and Path(kept).parent == tmp_path / "reference"
    run.progress.other = {(NAIVE.id, Kind.EVIDENCE): SimpleNamespace(folder=tmp_path / "reference")}
    assert run._states(FAST, tmp_path / "own") == kept


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


class Wanted:
    """What agreement wants to know: more seeds of one arm as they come, and courses."""

    def __init__(self, *words: Any) -> None:
        first, second = (NAIVE.id, 1), (FAST.id, 1)
        self.replicates = [[first, second], [first, second, (FAST.id, 2)], [first, second, (FAST.id, 2)]]
        self.courses = [["one", "two"], ["two", "three"], ["two", "three"]]

    def replicates_wanted(self, pack: Any) -> list[tuple[str, int]]:
        return self.replicates.pop(0)

    def courses_wanted(self, pack: Any, retry: Any) -> list[Any]:
        own = {"one": (FAST.id, 0, (3,)), "two": (NAIVE.id, 1, (4, 5)), "three": (FAST.id, 2, ())}
        Course = namedtuple("Course", "arm seed at")
        return [Course(*own[name]) for name in self.courses.pop(0)]


def test_further_seeds_are_drawn_once_each_until_they_suffice(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = bare(built), list[Any]()
    monkeypatch.setattr(pack, "Agreement", Wanted)
    run.progress.lacks = lambda pack, arm, kind, seed, retry: (arm, seed) != (FAST.id, 1)
    run._untimed = lambda wanted: asked.extend((one.arm.id, one.kind, one.seed, one.own) for one in wanted)
    run._seeds()
    assert asked == [(NAIVE.id, Kind.EVIDENCE, 1, {}), (FAST.id, Kind.EVIDENCE, 2, {})], "one is there"


def test_courses_are_followed_once_each_and_further_ones_are_another_attempt(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, asked = bare(built), list[Any]()
    monkeypatch.setattr(pack, "Agreement", Wanted)
    monkeypatch.setattr(pack, "claim", lambda folder, own: run.attempt + 1)
    run._untimed = lambda wanted: asked.extend(
        (run.attempt, one.arm.id, one.kind.value, one.seed, one.own["numbers_at"]) for one in wanted
    )
    run._courses()
    assert asked == [
        (4, FAST.id, "course", 0, (3,)),
        (4, NAIVE.id, "course", 1, (4, 5)),
        (5, FAST.id, "course", 2, ()),
    ]


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
        ("fork", "cpu", 1000, 8, 100, 1),
        ("fork", "cpu", 1000, 1, 300, 3),
        ("fork", "cpu", 1000, 1, 2000, 1),
        ("fork", "cpu", 1000, 1, None, 4),
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


def test_arms_that_end_jobs_are_not_trained(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "untrained", lambda *words: [(NAIVE.id, 0), (FAST.id, 0), (FAST.id, 1)])
    monkeypatch.setattr(pack, "arms_without", lambda *words: [NAIVE, Arm(id="c" * 16, label="c", levels={})])
    run, asked = bare(built), list[Any]()
    run.progress.retired = lambda pack, arms: [arm for arm in arms if arm == NAIVE.id]
    run._trial = lambda arm, kind, *rest: asked.append((arm.id, kind.value, *rest))
    run._trainings()
    assert asked == [(FAST.id, "quality", None, seed) for seed in (0, 1)] and run.advanced
    asked.clear()
    run._results()
    assert asked == [(NAIVE.id, "result", None)], "of arms of this pack"


@pytest.mark.parametrize(("attempts", "attempt"), [({}, 4), ({3: "x"}, 4), ({4: "x"}, 5)])
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


@pytest.mark.parametrize("parity", [False, True])
def test_a_pack_does_what_is_needed_once_then_its_rounds_then_what_looks_back_on_them(
    built: Built, parity: bool
) -> None:
    run, done, rounds = bare(built, _reference=FAST.id), list[Any](), [2, 0, None]
    measure = dataclasses.replace(run.manifest.sweep.measure, timed_parity=parity)
    sweep = run.manifest.sweep.model_copy(update={"measure": measure})
    run.manifest = run.manifest.model_copy(update={"sweep": sweep})
    run.support = lambda arm, kind: done.append((arm.id, kind.value))
    for name in ("_seeds", "_results", "_rest", "_trainings", "_courses"):
        setattr(run, name, lambda name=name: done.append(name))
    run._generation = lambda number: done.append(("_generation", number))
    tried: list[set[int]] = []
    run._next = lambda so_far: tried.append({*so_far}) or rounds.pop(0)
    run._feeder = SimpleNamespace(between_rounds=lambda: done.append("feed"))
    run.run()
    once = [(arm, kind) for arm in (FAST.id, NAIVE.id) for kind in ("counting", "evidence")]
    measured = ["_rest", ("_generation", 2), "feed", "_rest", ("_generation", 0), "feed"]
    assert done == [*once, "_seeds", "_results", *measured, "_trainings", *(["_courses"] if parity else [])]
    assert tried == [set(), {2}, {0, 2}]
