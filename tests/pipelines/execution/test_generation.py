"""Arms of a generation take turns: who works, who is stopped, who is measured alone, and what is noted."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.execution import generation as module
from perfsweep.pipelines.execution.generation import Generation, Trial
from perfsweep.pipelines.execution.spawn import Interrupted, Termination
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
from perfsweep.pipelines.trial.parent import Ready, Reply, Turn

GIB = 2**30
MS = 10**6
DEAD = Termination(Outcome.FAILED, Failure(type="SIGSEGV", message="ended"))


def warm(steps: int = 30, step_ns: int = MS, **own: Any) -> Reply:
    """What an arm says when it is warm: by default four turns of 9, 9, 9 and 3 ms."""
    facts = {"taken_bytes": GIB, "rests": True, "spares": True, **own}
    return Reply(ready=Ready(step_ns=step_ns, steps=steps, **facts))


class Pipe:
    """What was said to a process."""

    def __init__(self, process: Process, told: list[tuple[str, Any]]) -> None:
        self.process, self.told, self.broken = process, told, False

    def send(self, word: Any) -> None:
        if self.broken:
            raise BrokenPipeError
        self.told.append((self.process.arm, word))


class Process:
    """A process of an arm; `left` are its steps."""

    def __init__(self, arm: str, told: list[tuple[str, Any]], piped: bool = True) -> None:
        self.arm, self.pid, self.left = arm, 0, 0
        self.pipe = Pipe(self, told) if piped else None


class Arms:
    """Starts arms, and replies for them: what a test says first, and then as one that is well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[str, Any]] = []
        self.started: list[tuple[str, bool, dict]] = []
        self.ended: list[str] = []
        self.warm: dict[str, Reply] = {}
        self.replies: dict[str, list[Any]] = defaultdict(list)
        self.timeouts: set[float] = set()
        self.signals: list[tuple[str, str]] = []
        self.processes: dict[str, list[Process]] = {}
        self.elsewhere: set[str] = set()
        monkeypatch.setattr(module, "receive", self.receive)
        monkeypatch.setattr(module, "end", lambda children: self.ended.append(children[0].arm))
        monkeypatch.setattr(module, "_signal", self.signal)
        self.cores: list[tuple[int, frozenset[int]]] = []
        monkeypatch.setattr(
            module.os, "sched_setaffinity", lambda pid, cores: self.cores.append((pid, frozenset(cores)))
        )

    def start(self, spec_file: Path, world: int, env: Any, stay: bool = False) -> list[Process]:
        arm = spec_file.parent.parent.name
        self.started.append((arm, stay, dict(env)))
        found = [Process(arm, self.told) for _ in range(world)]
        if arm in self.elsewhere:
            found[-1].pipe = None
        self.processes[arm] = found
        return found

    def signal(self, children: list[Process], number: int) -> None:
        self.signals.append((children[0].arm, signal.Signals(number).name))

    def reply(self, arm: str) -> None:
        """What happens while an arm works; nothing, but where a test says what."""

    def receive(self, children: list[Process], timeout_s: float) -> Any:
        self.timeouts.add(timeout_s)
        arm = children[0].arm
        self.reply(arm)
        told = [word for name, word in self.told if name == arm]
        if left := self.replies[arm]:
            reply = left.pop(0)
            if isinstance(reply, BaseException):
                raise reply
        elif not told:
            reply = self.warm.get(arm, warm())
            children[0].left = reply.ready.steps if reply.ready else 0
        elif isinstance(told[-1], Turn):
            children[0].left -= told[-1].steps
            reply = Reply(own_s=0.5) if children[0].left <= 0 else Reply()
        else:
            reply = Reply()
        return reply if isinstance(reply, Termination) else [reply] * len(children)

    def turns(self) -> list[tuple[str, int, int]]:
        """Turns that were given: arm, timed steps, and steps before them."""
        return [(arm, word.steps, word.untimed) for arm, word in self.told if isinstance(word, Turn)]

    def order(self) -> str:
        return "".join(arm for arm, _, _ in self.turns())


@pytest.fixture
def arms(monkeypatch: pytest.MonkeyPatch) -> Arms:
    return Arms(monkeypatch)


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Trial]:
    """A trial of an arm; one that ends well has left its record."""

    def make(arm: str, recorded: bool = True, world: int = 1) -> Trial:
        spec = TrialSpec(
            sweep="s",
            workload="w",
            config={},
            arm=Arm(id=arm, label=f"arm {arm}", levels={}),
            kind=Kind.TIMING,
            pack="p000",
            round=1,
            attempt=0,
            measure=MeasureConfig(),
            code="",
            cache_dir="",
            world=world,
        )
        folder = tmp_path / arm / "r1"
        folder.mkdir(parents=True)
        if recorded:
            write_record(folder, TrialRecord.of(spec, 0.0, outcome=Outcome.OK))
        return Trial(spec, folder, {"OWN": arm})

    return make


def measured(
    arms: Arms, trials: list[Trial], memory_bytes: int = 0, seed: int = 0
) -> tuple[dict[str, TrialRecord], dict[str, str]]:
    """Records of a generation, and why arms are measured alone."""
    with Generation(memory_bytes, 9.0, 0.009, time.monotonic()) as generation:
        for one in trials:
            generation.start(one, arms)  # type: ignore[arg-type]
        records = {trial.spec.arm.id: record for trial, record in generation.run(random.Random(seed))}
    return records, {trial.spec.arm.id: why for trial, why in generation.alone}


def test_a_file_says_whose_turn_it_is_as_long_as_arms_work(
    arms: Arms, trial: Callable[..., Trial], tmp_path: Path
) -> None:
    file, noted = tmp_path / "at_work", list[str]()
    arms.reply = lambda arm: noted.append(file.read_text().partition("\n")[0])  # type: ignore[method-assign]
    with Generation(0, 9.0, 0.009, time.monotonic(), file) as generation:
        for one in (trial("a"), trial("longer")):
            generation.start(one, arms)  # type: ignore[arg-type]
        list(generation.run(random.Random(0)))
    ends = ["a", "longer"]
    assert noted == [f"{arm}/r1" for arm in ("a", "longer", *(arm for arm, _, _ in arms.turns()), *ends)]
    assert not file.exists()


def test_arms_are_warm_before_any_works_and_take_turns_until_their_regions_are_whole(
    arms: Arms, trial: Callable[..., Trial]
) -> None:
    records, alone = measured(arms, [trial("a"), trial("b")])
    assert arms.started == [("a", True, {"OWN": "a"}), ("b", True, {"OWN": "b"})]
    assert [(arm, record.outcome) for arm, record in records.items()] == [
        ("a", Outcome.OK),
        ("b", Outcome.OK),
    ]
    turns = arms.turns()
    assert all({arm for arm, _, _ in turns[at : at + 2]} == {"a", "b"} for at in range(0, 8, 2))
    assert (len(turns), alone, arms.timeouts, arms.ended) == (8, {}, {9.0}, ["a", "b"])


def test_turns_of_a_fast_arm_are_spread_over_those_of_a_slow_one(
    arms: Arms, trial: Callable[..., Trial]
) -> None:
    arms.warm = {"f": warm(18), "s": warm(90)}
    measured(arms, [trial("f"), trial("s")])
    order = arms.order()
    assert (order.count("f"), order.count("s")) == (2, 10)
    cycle_of = [order[: at + 1].count("s") for at, arm in enumerate(order) if arm == "f"]
    assert cycle_of[0] in (4, 5) and cycle_of[1] in (9, 10), "in the middle and at the end"


@pytest.mark.parametrize(
    ("ready", "steps", "untimed"),
    [
        ({"step_ns": MS}, 9, 2),
        ({"step_ns": 49 * MS}, 1, 1),
        ({"step_ns": 50 * MS}, 1, 0),
        ({"step_ns": MS, "rests": False}, 9, 0),
        ({"step_ns": MS, "spares": False}, 9, 0),
    ],
    ids=["1 ms", "49 ms", "50 ms", "works ahead", "a job"],
)
def test_steps_are_left_untimed_only_where_they_are_short_and_nothing_works_ahead(
    ready: dict[str, Any], steps: int, untimed: int, arms: Arms, trial: Callable[..., Trial]
) -> None:
    arms.warm["a"] = warm(60, **ready)
    measured(arms, [trial("a")])
    assert set(arms.turns()) == {("a", steps, untimed)}


def test_only_an_arm_that_works_on_is_stopped_while_it_waits(arms: Arms, trial: Callable[..., Trial]) -> None:
    arms.warm = {"r": warm(9), "w": warm(18, rests=False)}
    measured(arms, [trial("r"), trial("w")])
    assert {arm for arm, _ in arms.signals} == {"w"}
    words = [word for _, word in arms.signals]
    # Once warm it is stopped; then it goes on and is stopped for each of its two turns, and goes on to save.
    assert words == ["SIGSTOP", *["SIGCONT", "SIGSTOP"] * 2, "SIGCONT"]


def test_one_that_cannot_be_stopped_is_measured_alone_and_the_others_go_on(
    arms: Arms, trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(children: list[Process], number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(module, "_signal", refuse)
    arms.warm["w"] = warm(rests=False)
    records, alone = measured(arms, [trial("r"), trial("w"), trial("q")])
    assert (list(records), list(alone)) == (["r", "q"], ["w"])
    assert alone["w"] == "it has processes that cannot be stopped while others work"
    assert arms.ended == ["w", "r", "q"], "before others work"


@pytest.mark.parametrize(
    ("memory_gib", "each_gib", "alone"),
    [(10, 4.6, "bc"), (10, 4.5, "c"), (0, 99.0, ""), (10, 99.0, "bc")],
    ids=["do not", "two do", "unknown", "not even one"],
)
def test_an_arm_that_does_not_fit_is_measured_alone_and_the_others_go_on(
    memory_gib: int, each_gib: float, alone: str, arms: Arms, trial: Callable[..., Trial]
) -> None:
    arms.warm = {arm: warm(taken_bytes=round(each_gib * GIB)) for arm in "abc"} | {"d": warm(taken_bytes=0)}
    records, why = measured(arms, [trial(arm) for arm in "abcd"], memory_gib * GIB)
    assert "".join(why) == alone
    assert list(records) == [arm for arm in "abcd" if arm not in why]
    if each_gib == 4.6:
        assert why["b"] == "it takes 4.6 GiB, and the others leave 4.4"
    assert set(arms.order()) == set(records)


def test_one_that_dies_in_a_turn_has_a_record_that_says_so_and_no_more_turns(
    arms: Arms, trial: Callable[..., Trial], tmp_path: Path
) -> None:
    arms.replies["a"] = [warm(), Reply(), DEAD]
    records, _ = measured(arms, [trial("a", recorded=False), trial("b")])
    assert (records["a"].outcome, records["a"].failure) == (DEAD.outcome, DEAD.failure)
    assert read_record(tmp_path / "a/r1") == records["a"]
    assert records["a"].started > 0 and records["b"].outcome is Outcome.OK
    assert (arms.order().count("a"), arms.order().count("b")) == (2, 4)
    assert arms.ended == ["b"], "the other has been ended already"


def test_a_signal_reaches_what_an_arm_has_started_and_starts_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, first, second = (subprocess.Popen(["sleep", "60"], start_new_session=True) for _ in range(3))
    looks = iter([[first.pid], [first.pid, second.pid], [first.pid, second.pid], []])
    monkeypatch.setattr(module, "descendants", lambda pids: next(looks))
    child: Any = SimpleNamespace(pid=own.pid)
    module._signal([child], signal.SIGTERM)
    assert [one.wait() for one in (own, first, second)] == [-signal.SIGTERM] * 3
    module._signal([child], signal.SIGTERM)  # it has died


def test_an_interrupt_while_an_arm_warms_up_ends_it_and_all_others(
    arms: Arms, trial: Callable[..., Trial]
) -> None:
    arms.replies["b"] = [Interrupted("SIGTERM")]
    with pytest.raises(Interrupted):
        measured(arms, [trial("a"), trial("b")])
    assert sorted(arms.ended) == ["a", "b"]
