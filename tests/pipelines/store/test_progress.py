"""What a resumed sweep finds: which records are read and count, and on which machine they were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import planned_sweeps
import pytest
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    Environment,
    Failure,
    Kind,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    Version,
    write_record,
)


def versions(sweep: Built, **torch: str) -> Manifest:
    """The plan of a sweep whose arms run in environments with these versions of torch."""
    manifest = sweep.manifest
    made = tuple(
        Version(
            levels={"environment": name},
            digest=name,
            code="c0de",
            config={},
            environment=Environment(
                interpreter="", prefix="", python="", abi="", installed=name, keys={"torch": version}
            ),
        )
        for name, version in torch.items()
    )
    arms = tuple(replace(arm, version=name) for arm, name in zip(manifest.arms, torch, strict=True))
    return manifest.model_copy(
        update={"arms": arms, "sweep": manifest.sweep.model_copy(update={"versions": made})}
    )


def test_arms_in_environments_count_beside_one_another_whatever_torch_they_have(tmp_path: Path) -> None:
    sweep = build(tmp_path / "demo")
    here = {"device": "some CPU", "torch": "2.13.0"}
    for arm, torch in ((NAIVE, "2.13.0"), (FAST, "2.14.1")):
        sweep.add(sweep.spec(arm, 0, attempt=7), None, units=1.0, keys={**here, "torch": torch, "data": "d"})
    pack, number = sweep.manifest.packs[0], 0

    def measured(manifest: Manifest) -> set[str]:
        progress = read_progress(sweep.folder, manifest, here)
        return set(progress.timing[pack.id, number][7])

    assert measured(sweep.manifest) == {NAIVE.id}, "of another torch than this, and no arm says so"
    assert measured(versions(sweep, a="2.13.0", b="2.14.1")) == {NAIVE.id, FAST.id}
    assert measured(versions(sweep, a="2.13.0", b="2.15.0")) == {NAIVE.id}, "its environment has another now"
    progress = read_progress(sweep.folder, versions(sweep, a="2.13.0", b="2.14.1"), here)
    machines = [progress.machine, *(one.machine for one in progress.elsewhere)]
    assert all("torch" not in machine for machine in machines), "no machine is told apart by it"
    assert all(one.record.kind is Kind.TIMING for one in progress.timing[pack.id, number][7].values())


ARMS = (FAST.id, NAIVE.id)


def timing(arm: str, number: int, attempt: int = 0, **facts: Any) -> StoredTrial:
    own = {"pack": "p000", "round": number, "attempt": attempt, "outcome": Outcome.OK}
    return StoredTrial(Path(), TrialRecord(arm=arm, kind=Kind.TIMING, **own, **facts))


def test_an_attempt_that_broke_off_does_not_count_before_a_whole_one_though_every_arm_was_retired() -> None:
    progress, pack = Progress(), Pack(id="p000", orders=(ARMS, ARMS), start="fork")

    def add(arm: str, number: int, attempt: int, **own: Any) -> None:
        record = replace(timing(arm, number, attempt).record, **own)
        progress.add(StoredTrial(Path(), record))

    for number in range(2):
        for arm in ARMS:
            add(arm, number, 0, outcome=Outcome.FAILED)
    assert set(progress.retired("p000", ARMS)) == {*ARMS}
    add(ARMS[0], 0, 1, disturbed=("a neighbour",))
    for number in range(2):
        for arm in ARMS:
            add(arm, number, 2, disturbed=("a neighbour",))
    assert progress.finished_attempt(pack, 0) == 2
    assert progress.unfinished_rounds(pack, frozenset({Outcome.FAILED})) == [], "it was tried again for ever"


A, B, C = "a" * 16, "b" * 16, "c" * 16
AGAIN = frozenset({Outcome.OOM})


def told(*trials: tuple[str, int, int, dict[str, Any]], **own: Any) -> Progress:
    """Progress with timing trials, each an arm, a round, an attempt and what its record says besides."""
    progress = Progress(**own)
    for arm, number, attempt, fields in trials:
        progress.add(StoredTrial(Path(), replace(timing(arm, number, attempt).record, **fields)))
    return progress


def both(number: int, attempt: int = 0, **fields: Any) -> list[tuple[str, int, int, dict[str, Any]]]:
    return [(arm, number, attempt, fields) for arm in (A, B)]


NOISE: dict[str, Any] = {"disturbed": ("a neighbour",)}
OOM: dict[str, Any] = {"outcome": Outcome.OOM}
EVIDENCE: dict[str, Any] = {"kind": Kind.EVIDENCE, "round": None}
PACK = Pack(id="p000", orders=((A, B),) * 3, start="fork")


@pytest.mark.parametrize(
    ("trials", "attempt"),
    [
        ([], None),
        ([(A, 0, 0, {})], None),
        (both(0), 0),
        ([*both(0), *both(0, 1)], 1),
        ([*both(0), *both(0, 1, **NOISE)], 0),
        ([*both(0, **NOISE), (A, 0, 1, {}), (B, 0, 1, NOISE)], 1),
        ([*both(0), (A, 0, 1, {}), (B, 0, 1, OOM)], 0),
        ([*both(0, **NOISE), (A, 0, 1, {}), (B, 0, 1, OOM)], 0),
    ],
    ids=[
        "none",
        "half",
        "one",
        "the later of equals",
        "the undisturbed",
        "the less disturbed",
        "more arms that ended well",
        "they weigh more than noise",
    ],
)
def test_the_attempt_that_counts(trials: list, attempt: int | None) -> None:
    progress = told(*trials)
    assert progress.finished_attempt(PACK, 0) == attempt
    assert len(progress.used(PACK, 0)) == (0 if attempt is None else 2)


def test_the_first_attempt_is_the_first_of_those_in_which_most_arms_ended_well() -> None:
    failed_first = [*both(0, attempt=1), (A, 0, 0, {}), (B, 0, 0, OOM)]
    for trials, first in (([], None), (failed_first, 1), ([*both(0, **NOISE), *both(0, 1)], 0)):
        assert told(*trials).first_attempt(PACK, 0, {A, B}) == first
    noisy = [(arm, number, attempt, fields | NOISE) for arm, number, attempt, fields in failed_first[:2]]
    assert told(*noisy, *failed_first[2:]).first_attempt(PACK, 0, {A, B}) == 1, "noise has no say"


@pytest.mark.parametrize(("kind", "kept"), [(Kind.EVIDENCE, "other"), (Kind.QUALITY, "trainings")])
def test_of_trials_without_times_the_last_attempt_counts_in_whatever_order_they_are_read(
    kind: Kind, kept: str
) -> None:
    progress = told(*((A, 0, attempt, {"kind": kind, "round": None}) for attempt in (2, 10, 3)))
    (found,) = getattr(progress, kept).values()
    assert found.record.attempt == 10


@pytest.mark.parametrize(
    ("failures", "retired"),
    [
        ([OOM], False),
        ([OOM, OOM], True),
        ([OOM, {"outcome": Outcome.PREEMPTED}], False),
        ([{"outcome": Outcome.UNSUPPORTED}], True),
        ([{**OOM, "failure": Failure(type="ConfigError", message="")}], True),
        ([{**OOM, "failure": Failure(type="JobOutOfMemory", message="")}], True),
        ([{**EVIDENCE, "outcome": Outcome.UNSUPPORTED}], True),
        ([{**EVIDENCE, "kind": Kind.COUNTING, "outcome": Outcome.UNSUPPORTED}], False),
        ([{**EVIDENCE, **OOM}], False),
        ([{**EVIDENCE, **OOM, "failure": Failure(type="ConfigError", message="")}], True),
    ],
    ids=[
        "once",
        "twice",
        "not its own",
        "unsupported",
        "a mistake",
        "the whole job",
        "evidence that cannot be had",
        "counts that cannot be had",
        "evidence once",
        "a mistake of evidence",
    ],
)
def test_an_arm_that_cannot_run_is_not_started_again(failures: list, retired: bool) -> None:
    progress = told(*((A, number, 0, fields) for number, fields in enumerate(failures)), (B, 0, 0, {}))
    assert (A in progress.retired("p000", PACK.arms)) is retired
    everywhere = "kind" in failures[0]
    assert (A in progress.retired("p001", PACK.arms)) is (retired and everywhere)
    assert (progress.finished_attempt(PACK, 2) is None) is True


@pytest.mark.parametrize(
    ("failed", "kind", "others"),
    [(A, "ConfigError", True), (A, "JobOutOfMemory", False), (B, "ConfigError", False)],
)
def test_a_mistake_of_the_reference_ends_all_arms_at_once(failed: str, kind: str, others: bool) -> None:
    failure = Failure(type=kind, message="no")
    progress = told(
        (failed, 0, 0, {"outcome": Outcome.FAILED, "failure": failure}), rule=SimpleNamespace(reference=A)
    )
    rest = [one for one in (A, B, C) if one != failed]
    assert set(progress.retired("p000", rest)) == (set(rest) if others else set())


def test_attempts_keep_their_order_where_the_clock_was_set_back_between_them() -> None:
    ends = ((0, 9000.0), (1, 9001.0), (2, 100.0))
    progress = told(*((A, 0, attempt, {**OOM, "ended": when}) for attempt, when in ends))
    assert [one.record.attempt for one in progress.timings("p000", A)] == [0, 1, 2]
    assert progress.retired("p000", [A])[A].attempt == 1, "its second failure, as before the third"


@pytest.mark.parametrize(
    ("trials", "retry", "left"),
    [
        ([], AGAIN, [0, 1, 2]),
        ([*both(0), *both(1), *both(2)], AGAIN, []),
        ([*both(0), (A, 1, 0, OOM), (B, 1, 0, {}), *both(2)], AGAIN, [1]),
        ([*both(0), (A, 1, 0, OOM), (B, 1, 0, {}), *both(2)], frozenset(), []),
        ([(arm, 0, number, OOM) for arm in (A, B) for number in (0, 1)], frozenset(), []),
        ([(arm, 0, number, OOM) for arm in (A, B) for number in (0, 1)], AGAIN, [0, 1, 2]),
        ([(A, 0, 0, OOM), (A, 0, 1, OOM), *((B, number, 0, {}) for number in range(3))], AGAIN, [0, 1, 2]),
    ],
    ids=[
        "all",
        "none",
        "what is to be tried again",
        "unless nobody asks",
        "no arm is left",
        "each is to be tried again",
        "which is to be tried again",
    ],
)
def test_rounds_that_are_left(trials: list, retry: frozenset, left: list[int]) -> None:
    assert told(*trials).unfinished_rounds(PACK, retry) == left


def test_seconds_are_of_the_first_rounds_and_of_every_attempt() -> None:
    took = {"started": 10.0, "ended": 12.0}
    trials = [*both(0, **took), *both(0, 1, **took), *both(1, **took), *both(2, **took)]
    assert told(*trials).seconds("p000", 2) == 12.0
    assert told(*trials).seconds("p001", 2) == 0.0


def test_a_forgotten_round_is_finished_and_leaves_nothing_else_behind() -> None:
    pack = Pack(id="p000", orders=((A, B),) * 4, start="fork")
    progress = told(*both(0), *both(1), *both(2), (A, 3, 0, {}))
    evidence = StoredTrial(Path(), replace(timing(A, 0).record, kind=Kind.EVIDENCE, round=None))
    progress.add(evidence)
    progress.forget(pack, 0)
    progress.forget(pack, 3)
    kept = [(1, A), (1, B), (2, A), (2, B), (3, A)]
    assert [(one.record.round, one.record.arm) for one in progress.every] == [*kept, (None, A)]
    assert [one.round for one in progress.timed[A]] == [number for number, arm in kept if arm == A]
    assert [one.record.round for one in progress.timings("p000", B)] == [n for n, arm in kept if arm == B]
    assert {number for _, number in progress.timing} == {number for number, _ in kept}
    assert progress.unfinished_rounds(pack) == [3]
    assert progress.finished_rounds(pack) == 4 - len(progress.unfinished_rounds(pack))


def test_a_forgotten_round_stays_finished_when_an_arm_of_it_is_retired_later() -> None:
    progress = told(*both(0), (B, 1, 0, OOM), (A, 1, 0, {}), (B, 2, 0, OOM), (A, 2, 0, {}))
    progress.forget(PACK, 0)
    progress.forget(PACK, 1)
    assert set(progress.retired("p000", (A, B))) == {B}, "its failures are not forgotten"
    assert progress.unfinished_rounds(PACK) == []
    assert told(*both(0)).unfinished_rounds(PACK) == [1, 2]


@pytest.mark.parametrize(
    ("trials", "repeats", "again"),
    [
        ([*both(0, **NOISE), *both(1, **NOISE), *both(2)], 1, [0]),
        ([*both(0, **NOISE), *both(1, **NOISE), *both(2)], 9, [0, 1]),
        ([*both(0, **NOISE), *both(0, 1), *both(1, **NOISE), *both(2)], 1, []),
        ([*both(0, **NOISE), *both(0, 1), *both(1, **NOISE), *both(2)], 2, [1]),
    ],
    ids=["one may be", "all that were disturbed", "one was", "and another may be"],
)
def test_disturbed_rounds_are_measured_again_as_often_as_they_may_be(
    trials: list, repeats: int, again: list[int]
) -> None:
    assert told(*trials, repeats=repeats).unfinished_rounds(PACK) == again


def test_a_round_that_may_be_chosen_or_measured_again_is_not_forgotten() -> None:
    progress = told(*both(0, **NOISE), *both(1), *both(1, attempt=1), *both(2), repeats=2)
    for number in range(3):
        progress.forget(PACK, number)
    assert {number for _, number in progress.timing} == {0, 1}
    assert progress.to_repeat(PACK) == [0]
    quiet = told(*both(0, **NOISE))
    quiet.forget(PACK, 0)
    assert not quiet.timing, "nothing is measured again without measure.repeats"


def kept(folder: SweepFolder, plan: Manifest, arm: str, number: int, **own: Any) -> None:
    place = planned_sweeps.begun(folder, plan, arm, round=number)
    facts = {"code": "c", "method": plan.sweep.measure.method, "keys": {"device": "one"}, "round": number}
    write_record(place, planned_sweeps.record(arm, **{**facts, **own}))


@pytest.mark.parametrize(("attempt", "named"), [(0, True), (1, True), (3, False)])
def test_a_damaged_record_that_a_later_attempt_replaces_is_missed_by_nobody(
    tmp_path: Path, attempt: int, named: bool
) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    broken = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=1, attempt=2)
    (broken / "record.json").write_text("{")
    again = planned_sweeps.begun(
        folder, plan, planned_sweeps.NAIVE, round=1, attempt=attempt, outcome=Outcome.OK
    )
    other = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=2, attempt=3, outcome=Outcome.OK)
    assert again.name.endswith(f"-a{attempt}") and other.exists()
    assert bool(read_progress(folder, plan).damaged) is named


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"code": "d"}, "other code"),
        ({"method": "m"}, "other settings of measure"),
        ({"placement": "2 nodes"}, "other nodes"),
        ({"keys": {"device": "two"}}, "another machine, device or version"),
    ],
)
def test_records_of_another_experiment_are_counted_by_what_sets_them_apart(
    tmp_path: Path, own: dict, why: str | None
) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for number in range(2):
        kept(folder, plan, planned_sweeps.NAIVE, number, **own)
    found = read_progress(folder, plan, {"device": "one"})
    assert dict(found.left_out) == ({why: 2} if why else {})
    assert len(found.every) == (0 if why else 2)


@pytest.mark.parametrize(
    ("two", "counts", "elsewhere"),
    [((0, 1, 2), "two", "one"), ((5,), "one", "two"), ((4, 5), "two", "one")],
    ids=["most rounds", "fewer", "of equals the last used"],
)
def test_the_machine_counts_that_most_rounds_ran_on(
    tmp_path: Path, two: tuple[int, ...], counts: str, elsewhere: str
) -> None:
    arms = (planned_sweeps.NAIVE,)
    own = {"packs": (planned_sweeps.pack(*arms, rounds=6),), "effects": ()}
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest(planned_sweeps.arm(arms[0]), **own)
    for number in (3, 4) if two == (5,) else (2, 3):
        kept(folder, plan, arms[0], number, started=1.0, keys={"device": "one", "data": "x"})
    for number in two:
        place = planned_sweeps.begun(folder, plan, arms[0], round=number, attempt=1)
        facts = {"code": "c", "method": plan.sweep.measure.method, "attempt": 1, "started": 2.0}
        keys = {"device": "two", "data": "y"}
        write_record(place, planned_sweeps.record(arms[0], round=number, keys=keys, **facts))
    found = read_progress(folder, plan)
    assert found.machine == {"device": counts}
    assert [one.machine for one in found.elsewhere] == [{"device": elsewhere}]
    assert len(found.every) == 2 + len(two)
    assert len(found.timed[arms[0]]) + len(found.elsewhere[0].timed[arms[0]]) == 2 + len(two)


def test_a_machine_that_timed_nothing_to_the_end_is_not_the_one_that_counts(tmp_path: Path) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for device, kind, number, outcome in (
        ("one", Kind.TIMING, 0, Outcome.OK),
        ("two", Kind.TIMING, 1, Outcome.OOM),
        ("two", Kind.EVIDENCE, None, Outcome.OK),
    ):
        place = planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, kind=kind, round=number)
        facts = {"code": "c", "method": plan.sweep.measure.method, "keys": {"device": device}}
        own = {**facts, "round": number, "outcome": outcome}
        write_record(place, planned_sweeps.record(planned_sweeps.NAIVE, kind, **own))
    found = read_progress(folder, plan)
    assert (found.machine, found.elsewhere) == ({"device": "one"}, [])
    assert len(found.every) == 3, "what was found out elsewhere stays"


def test_records_of_other_code_are_named_and_measured_again(tmp_path: Path) -> None:
    sweep = build(tmp_path / "demo")
    (pack,) = sweep.manifest.packs
    before = read_progress(sweep.folder, sweep.manifest)
    assert before.timing and 0 not in before.unfinished_rounds(pack)
    newer = sweep.manifest.sweep.model_copy(update={"code": "changed"})
    progress = read_progress(sweep.folder, sweep.manifest.model_copy(update={"sweep": newer}))
    assert set(progress.left_out) == {"other code"}
    assert progress.unfinished_rounds(pack)[0] == 0
    assert not progress.timing


def test_of_trials_that_are_needed_once_the_latest_attempt_counts_in_whatever_order_they_are_read() -> None:
    for kind, place in ((Kind.EVIDENCE, "other"), (Kind.QUALITY, "trainings")):
        for order in ((2, 10, 1), (10, 1, 2)):
            found = planned_sweeps.progress(
                *(planned_sweeps.record(A, kind, attempt=attempt) for attempt in order)
            )
            (only,) = getattr(found, place).values()
            assert only.record.attempt == 10


def test_what_many_records_say_alike_is_kept_once() -> None:
    own = ({"round": n, "environment": {"gpus": ["x"]}, "counters": {"ops": 2.0}} for n in (0, 1))
    found = planned_sweeps.progress(*(planned_sweeps.record(A, **one) for one in own))
    one, other = (trial.record for trial in found.every)
    assert one.counters is other.counters and one.environment["gpus"] is other.environment["gpus"]


def test_damaged_records_are_named_and_trials_that_run_are_passed_over(tmp_path: Path) -> None:
    folder, plan = SweepFolder(tmp_path), planned_sweeps.manifest()
    for number in (0, 3):
        kept(folder, plan, planned_sweeps.NAIVE, number)
    (planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=1) / "record.json").write_text("{")
    planned_sweeps.begun(folder, plan, planned_sweeps.NAIVE, round=2)
    found = read_progress(folder, plan)
    assert [one.record.round for one in found.every] == [0, 3]
    assert len(found.damaged) == 1 and "-r001-a0/record.json" in found.damaged[0]
