"""An arm that keeps failing is retired for good, and costs no other arm a round."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import pytest

from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, Pack, TrialRecord

ROUNDS, REPEATED = 10, (0, 1)


def trial(arm: str, number: int, attempt: int, when: float, *, oom: bool, disturbed: bool) -> StoredTrial:
    failure = Failure(type="MemoryError", message="too large") if oom else None
    own = {"outcome": Outcome.OOM if oom else Outcome.OK, "failure": failure, "ended": when}
    record = TrialRecord(
        arm=arm,
        kind=Kind.TIMING,
        pack="p000",
        round=number,
        attempt=attempt,
        disturbed=("a neighbour",) if disturbed else (),
        **own,
    )
    return StoredTrial(Path(), record)


def measured(arms: int, seed: int) -> tuple[Pack, Progress]:
    """Run a sweep as a pack does: the last arm has no memory, and two rounds are disturbed at first."""
    draw, clock = random.Random(seed), count()
    names = [f"arm{number}" for number in range(arms)]
    orders = tuple(tuple(draw.sample(names, arms)) for _ in range(ROUNDS))
    pack, progress = Pack(id="p000", orders=orders, start="fork"), Progress(repeats=len(REPEATED))
    attempts = dict.fromkeys(range(ROUNDS), -1)
    for _ in range(4 * ROUNDS):
        if not (left := progress.unfinished_rounds(pack)):
            return pack, progress
        number = left[0]
        attempts[number] += 1
        for arm in orders[number]:
            if arm not in progress.retired(pack.id, [arm]):
                disturbed = attempts[number] == 0 and number in REPEATED and arm != names[-1]
                own = {"oom": arm == names[-1], "disturbed": disturbed}
                progress.add(trial(arm, number, attempts[number], float(next(clock)), **own))
    raise AssertionError("the pack never ends")


@pytest.mark.parametrize("arms", [2, 4, 8])
def test_no_round_is_lost_to_an_arm_without_memory_when_rounds_are_repeated(arms: int) -> None:
    for seed in range(60):
        pack, progress = measured(arms, seed)
        assert sum(len(progress.used(pack, number)) >= arms - 1 for number in range(ROUNDS)) == ROUNDS, seed
        assert len(progress.timings(pack.id, pack.arms[-1])) == 2
        assert set(progress.repeated(pack)) == set(REPEATED)


def test_a_pack_whose_job_the_memory_limit_kills_ends() -> None:
    """Each kill leaves a record of the trial that ran, in an attempt of its own, and no finished round."""
    progress, clock = Progress(), count()
    pack = Pack(id="p000", orders=(("arm0", "arm1"),) * 3, start="fork")
    for attempt in range(2):
        progress.add(trial("arm0", 0, attempt, next(clock), oom=True, disturbed=False))
    assert progress.retired(pack.id, pack.arms).keys() == {"arm0"}
    for number in range(3):
        progress.add(trial("arm1", number, 2, next(clock), oom=False, disturbed=False))
    assert progress.unfinished_rounds(pack) == []


def test_nothing_is_left_to_measure_once_every_arm_is_retired() -> None:
    progress = Progress()
    pack = Pack(id="p000", orders=(("arm0",),) * 5, start="fork")
    for attempt in range(2):
        progress.add(trial("arm0", 0, attempt, attempt, oom=True, disturbed=False))
    assert progress.unfinished_rounds(pack) == []
    assert progress.unfinished_rounds(pack, frozenset({Outcome.OOM})) == [0, 1, 2, 3, 4]


def test_the_record_that_retires_an_arm_says_which_exception_it_was() -> None:
    progress = Progress()
    for number in range(2):
        progress.add(trial("arm0", number, 0, number, oom=True, disturbed=False))
    last = progress.retired("p000", ["arm0"])["arm0"]
    assert last.round == 1
    assert last.failure is not None
    assert last.failure.type == "MemoryError"


def test_attempts_keep_their_order_where_the_clock_was_set_back_between_them() -> None:
    progress = Progress()
    for attempt, when in enumerate((9000.0, 9001.0, 100.0)):
        progress.add(trial("arm0", 0, attempt, when, oom=True, disturbed=False))
    assert [one.record.attempt for one in progress.timings("p000", "arm0")] == [0, 1, 2]
    assert progress.retired("p000", ["arm0"])["arm0"].attempt == 1, "its second failure, as before the third"


@pytest.mark.parametrize("kind", [Kind.COUNTING, Kind.EVIDENCE])
def test_a_mistake_that_one_trial_names_is_not_made_by_all_the_others(kind: Kind) -> None:
    progress = Progress()
    pack = Pack(id="p000", orders=(("arm0", "arm1"),) * 3, start="fork")
    mistake = Failure(type="ConfigError", message="measure.target_figure=beauty: no such number")
    bug = Failure(type="ValueError", message="no such file")
    for arm, failure in (("arm0", mistake), ("arm1", bug)):
        record = TrialRecord(
            arm=arm, kind=kind, pack="p000", round=None, attempt=0, outcome=Outcome.FAILED, failure=failure
        )
        progress.add(StoredTrial(Path(), record))
    assert progress.retired(pack.id, pack.arms).keys() == {"arm0"}
