"""A process that waits while other arms work: what its waits do not count towards."""

from __future__ import annotations

from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.trial import turns
from perfsweep.pipelines.trial.machine.environment import HostUsage, foreign_cores, without_waits
from perfsweep.pipelines.trial.parent import Reply
from perfsweep.pipelines.trial.turns import Turns

AT_FIRST = HostUsage(
    cpu_s=100.0, steal_s=1.0, load=1.0, node_cores=2, gpus=(), busy_s=50.0, own_s=1.0, at_s=10.0
)


def later(usage: HostUsage, seconds: float, busy_s: float, own_s: float = 0.0) -> HostUsage:
    """The same node some seconds later, after so much work of all processes and of this one."""
    return replace(
        usage,
        cpu_s=usage.cpu_s + 2 * seconds,
        busy_s=(usage.busy_s or 0.0) + busy_s,
        own_s=usage.own_s + own_s,
        at_s=usage.at_s + seconds,
    )


def test_what_other_arms_do_in_the_waits_of_one_is_no_work_of_strangers() -> None:
    paused = later(AT_FIRST, 1.0, busy_s=1.0, own_s=1.0)
    resumed = later(paused, 5.0, busy_s=5.0)
    at_last = later(resumed, 1.0, busy_s=1.25, own_s=1.0)
    assert foreign_cores(AT_FIRST, at_last) == pytest.approx(5.25 / 7)
    without = without_waits(AT_FIRST, [(paused, resumed)])
    assert foreign_cores(without, at_last) == pytest.approx(0.25 / 2)
    assert at_last.cpu_s - without.cpu_s == pytest.approx(4.0)


def test_a_node_that_does_not_tell_how_busy_it_was_tells_nothing_without_the_waits_either() -> None:
    silent = replace(AT_FIRST, busy_s=None)
    assert without_waits(silent, [(silent, silent)]).busy_s is None


class Elsewhere:
    """The other end of a pipe, where each answer takes seconds on a clock of the test's."""

    def __init__(self, waits_s: float) -> None:
        self.now_s, self._waits_s, self.said = 1000.0, waits_s, list[Any]()

    def send(self, reply: Any) -> None:
        self.said.append(reply)

    def recv(self) -> str:
        self.now_s += self._waits_s
        return "spec.json"

    def time(self) -> float:
        return self.now_s


def test_a_turn_lasts_as_long_as_its_process_works_from_its_set_up_on(monkeypatch) -> None:
    elsewhere = Elsewhere(waits_s=100.0)
    monkeypatch.setattr(turns, "time", elsewhere)
    process = Turns(elsewhere, began=elsewhere.now_s)  # type: ignore[arg-type]
    elsewhere.now_s += 3  # set-up
    process.reply(Reply())
    process.next()
    for _ in range(4):  # slices
        elsewhere.now_s += 1
        process.others()
    elsewhere.now_s += 1
    assert process.worked_s() == pytest.approx(8.0)
    assert [reply.waits for reply in elsewhere.said] == [False, True, True, True, True]
    assert len(process.waits) == 4
    process.reply(Reply())
    process.next()
    elsewhere.now_s += 2
    assert process.worked_s() == pytest.approx(2.0) and not process.waits


def test_a_process_whose_pack_is_gone_ends_without_a_word() -> None:
    pack, own = Pipe()
    pack.close()
    process = Turns(own, began=0.0)
    for speak in (lambda: process.reply(Reply()), process.others):
        with pytest.raises(SystemExit):
            speak()


def test_one_that_lets_others_work_goes_on_when_it_is_told_and_no_sooner() -> None:
    pack, own = Pipe()
    process = Turns(own, began=0.0)
    pack.send("")
    pack.send("turn/spec.json")
    process.others()
    assert process.next() == Path("turn/spec.json")
    assert pack.recv() == Reply(waits=True)
    pack.close()
    assert process.next() is None
