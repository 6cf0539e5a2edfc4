"""Arms that stay in their processes and take turns: who works, who is ended, and what is noted of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.execution import resident
from perfsweep.pipelines.execution.resident import GO_ON, CannotStay, Generation, Turn
from perfsweep.pipelines.execution.spawn import Termination
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import (
    Failure,
    Outcome,
    TrialRecord,
    TrialSpec,
    read_record,
    write_record,
)
from perfsweep.pipelines.store.schema import Arm, Kind
from perfsweep.pipelines.trial.parent import Reply

GIB = 2**30
DEAD = Termination(Outcome.FAILED, Failure(type="SIGSEGV", message="ended"))


class Pipe:
    """What was said to a process."""

    def __init__(self, arm: str, told: list[tuple[str, str]], broken: bool = False) -> None:
        self.arm, self.told, self.broken = arm, told, broken

    def send(self, word: str) -> None:
        if self.broken:
            raise BrokenPipeError
        self.told.append((self.arm, "go on" if word == GO_ON else Path(word).parent.name))


class Process:
    """A process that stays."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe


class Arms:
    """Starts arms, and replies for them what a test says; by default that each is well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[str, str]] = []
        self.started: list[tuple[str, bool, dict]] = []
        self.ended: list[str] = []
        self.replies: dict[str, list[Any]] = defaultdict(list)
        self.timeouts: set[float] = set()
        monkeypatch.setattr(resident, "receive", self.receive)
        monkeypatch.setattr(resident, "end", lambda children: self.ended.append(children[0].pipe.arm))

    def start(self, spec_file: Path, world: int, env: Any, stay: bool = False) -> list[Process]:
        arm = spec_file.parent.parent.name
        self.started.append((arm, stay, dict(env)))
        return [Process(Pipe(arm, self.told))]

    def receive(self, children: list[Process], timeout_s: float) -> Any:
        self.timeouts.add(timeout_s)
        left = self.replies[children[0].pipe.arm]
        reply = left.pop(0) if left else Reply()
        return reply if isinstance(reply, Termination) else [reply]


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Arms:
    return Arms(monkeypatch)


@pytest.fixture
def turn(tmp_path: Path) -> Callable[..., Turn]:
    """A turn of an arm in a round; one that ends well has left its record."""

    def make(arm: str, number: int = 0, recorded: bool = True) -> Turn:
        spec = TrialSpec(
            sweep="s",
            workload="w",
            config={},
            arm=Arm(id=arm, label=f"arm {arm}", levels={}),
            kind=Kind.TIMING,
            pack="p000",
            round=number,
            attempt=0,
            measure=MeasureConfig(),
            code="",
            cache_dir="",
        )
        folder = tmp_path / arm / f"r{number}"
        if recorded:
            folder.mkdir(parents=True)
            write_record(folder, TrialRecord.of(spec, 0.0, outcome=Outcome.OK))
        return Turn(spec, folder, {"OWN": arm})

    return make


def test_arms_start_to_stay_and_take_their_turns_in_order(arms: Arms, turn: Callable[..., Turn]) -> None:
    with Generation(arms, 0, 9.0) as generation:
        for arm in "ab":
            generation.start(turn(arm))
        records = list(generation.run([turn("b", 1), turn("a", 1)]))
    assert arms.started == [("a", True, {"OWN": "a"}), ("b", True, {"OWN": "b"})]
    assert [(record.arm, record.outcome) for record in records] == [("b", Outcome.OK), ("a", Outcome.OK)]
    assert arms.told == [("b", "r1"), ("a", "r1")]
    assert (arms.timeouts, arms.ended) == ({9.0}, ["a", "b"])


def test_arms_that_wait_in_the_middle_are_told_to_go_on_in_turn(
    arms: Arms, turn: Callable[..., Turn]
) -> None:
    with Generation(arms, 0, 9.0, must_rest=True) as generation:
        for arm in "ab":
            generation.start(turn(arm))
        arms.replies |= {"a": [Reply(waits=True), Reply(waits=True)], "b": [Reply(waits=True)]}
        ended = [record.arm for record in generation.run([turn("a", 1), turn("b", 1)])]
    assert arms.told == [("a", "r1"), ("b", "r1"), ("a", "go on"), ("b", "go on"), ("a", "go on")]
    assert ended == ["b", "a"]


def test_one_that_dies_has_a_record_that_says_so_and_no_more_turns(
    arms: Arms, turn: Callable[..., Turn]
) -> None:
    with Generation(arms, 0, 9.0) as generation:
        generation.start(turn("a"))
        generation.start(turn("b"))
        arms.replies["a"] = [DEAD]
        first, _ = generation.run([turn("a", 1, recorded=False), turn("b", 1)])
        later, _ = generation.run([turn("a", 2, recorded=False), turn("b", 2)])
    assert (first.outcome, first.failure) == (later.outcome, later.failure) == (DEAD.outcome, DEAD.failure)
    assert arms.told == [("a", "r1"), ("b", "r1"), ("b", "r2")]
    assert arms.ended == ["b"]


def test_what_its_process_could_not_write_is_written_for_it(
    arms: Arms, turn: Callable[..., Turn], tmp_path: Path
) -> None:
    with Generation(arms, 0, 9.0) as generation:
        arms.replies["a"] = [DEAD]
        generation.start(turn("a", recorded=False))
        (record,) = generation.run([turn("a", 1, recorded=False)])
    assert read_record(tmp_path / "a/r1") == record
    assert record.round == 1 and record.started > 0


@pytest.mark.parametrize(
    ("failure", "message"),
    [(Failure(type="ValueError", message="mine"), "mine"), (None, "the process gave no reason")],
)
def test_one_that_replies_that_it_failed_is_ended(
    arms: Arms, turn: Callable[..., Turn], failure: Failure | None, message: str
) -> None:
    with Generation(arms, 0, 9.0) as generation:
        arms.replies["a"] = [Reply(Outcome.OOM, failure)]
        generation.start(turn("a", recorded=False))
        assert arms.ended == ["a"]
        (record,) = generation.run([turn("a", 1, recorded=False)])
    assert record.outcome is Outcome.OOM and record.failure and record.failure.message == message


def test_one_that_has_died_unheard_is_found_by_its_silence(arms: Arms, turn: Callable[..., Turn]) -> None:
    with Generation(arms, 0, 9.0) as generation:
        generation.start(turn("a"))
        generation._alive["a"][0].pipe.broken = True  # type: ignore[union-attr]
        arms.replies["a"] = [DEAD]
        (record,) = generation.run([turn("a", 1, recorded=False)])
    assert record.failure == DEAD.failure


@pytest.mark.parametrize(
    ("memory_gib", "each_gib", "fits"), [(10, 4.4, True), (10, 4.6, False), (0, 99.0, True)]
)
def test_arms_that_do_not_fit_together_cannot_stay(
    arms: Arms, turn: Callable[..., Turn], memory_gib: int, each_gib: float, fits: bool
) -> None:
    arms.replies |= {arm: [Reply(taken_bytes=round(each_gib * GIB))] for arm in "ab"}
    with Generation(arms, memory_gib * GIB, 9.0) as generation:
        generation.start(turn("a"))
        if fits:
            generation.start(turn("b"))
        else:
            with pytest.raises(CannotStay, match=r"take 9\.2 GiB together, more than 0\.9 of 10\.0 GiB"):
                generation.start(turn("b"))
    assert arms.ended == ["a", "b"]


@pytest.mark.parametrize(("must_rest", "refused"), [(True, True), (False, False)])
def test_one_that_works_on_cannot_wait_in_the_middle_of_a_turn(
    arms: Arms, turn: Callable[..., Turn], must_rest: bool, refused: bool
) -> None:
    arms.replies["a"] = [Reply(rests=False)]
    with Generation(arms, 0, 9.0, must_rest) as generation:
        if refused:
            with pytest.raises(
                CannotStay, match=r"^arm a cannot wait in the middle of a turn, as jobs cannot"
            ):
                generation.start(turn("a"))
        else:
            generation.start(turn("a"))


def test_scratch_of_processes_that_were_ended_is_removed(
    arms: Arms, turn: Callable[..., Turn], tmp_path: Path
) -> None:
    with Generation(arms, 0, 9.0) as generation:
        generation.start(turn("a"))
        (tmp_path / "a/r0/scratch").mkdir()
    assert not (tmp_path / "a/r0/scratch").exists()
