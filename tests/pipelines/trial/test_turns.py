"""What is timed of an arm that takes turns: the step that a training has, and every place of its cadence."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import FakeClock
from planned_sweeps import spec

from perfsweep.pipelines.store.records import read_iterations
from perfsweep.pipelines.trial.parent import Turn
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import regions
from perfsweep.pipelines.trial.turns import Uncut, Wanted
from perfsweep.workloads.api import Device

US = 1000


class Train:
    """Steps of 800 us, the first ones after a wait slower; each `cadence`-th evaluates for 5 ms more.

    The first evaluation of a process takes 2 ms more still.
    """

    shape, units, cadence_is_known = "steps", 0, True
    cold_us = (138, 70, 10)

    def __init__(
        self, clock: FakeClock, log: BufferedLog, cadence: int = 1, last: int = 10**9, neighbour: int = 10**9
    ) -> None:
        self.clock, self.log, self.cadence, self.last = clock, log, cadence, last
        self.neighbour, self.lost_ns = neighbour, 0
        self.steps = self.since_wait = 0

    def step(self, marks: Any) -> None:
        cold = self.cold_us[self.since_wait] if self.since_wait < len(self.cold_us) else 0
        evaluates = 5000 if self.cadence > 1 and self.steps % self.cadence == self.cadence - 1 else 0
        new = 2000 if evaluates and self.steps < self.cadence else 0
        self.clock.time_ns += (800 + cold + evaluates + new) * US
        self.steps += 1
        if self.steps % self.neighbour == 0:
            self.clock.time_ns += 3000 * US
            self.lost_ns += 3000 * US
        self.since_wait += 1
        self.log({"step": self.steps})

    def done(self) -> bool:
        return self.steps >= self.last

    def reset(self) -> None:
        self.steps = 0

    def progress(self) -> int:
        return self.steps

    def child_usage(self) -> None: ...

    def work(self) -> Any:
        return type("Work", (), {"flops": None, "products": ""})()

    def counters(self) -> dict[str, float]:
        return {}

    def numbers(self) -> dict[str, float]:
        return {}

    @property
    def length(self) -> None: ...


class Given:
    """Turns as a test gives them; caches are cold after each wait."""

    def __init__(self, work: Train, turns: Iterable[Turn]) -> None:
        self.work, self.turns, self.taken = work, iter(turns), 0

    def next(self) -> Turn:
        self.work.since_wait = 0
        self.taken += 1
        return next(self.turns)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Times some iterations of a training in turns: what was found, the series, and the work."""

    def run(
        turns: Iterable[Turn] | None,
        iterations: int = 60,
        shape: str = "steps",
        rare: tuple[int, ...] | None = None,
        **own: Any,
    ) -> Any:
        clock, log = FakeClock(time_ns=10**12), BufferedLog()
        monkeypatch.setattr(regions, "clock_for", lambda device: clock)
        work = Train(clock, log, **own)
        monkeypatch.setattr(clock, "delay_ns", lambda: work.lost_ns)
        work.shape = shape
        planned = spec(measure={"iterations": iterations}, rare=rare)
        monkeypatch.setattr(regions, "settle_collector", lambda *words: None)
        with regions.Timing(work, planned, Device(), log) as timing:  # type: ignore[arg-type]
            timing.warm_up(tmp_path)
            found = timing.region(tmp_path, Given(work, turns) if turns else Uncut())
        return found, read_iterations(tmp_path), work

    return run


def test_steps_after_a_wait_are_not_timed_where_a_turn_spares_them(timed: Any) -> None:
    found, arrays, _ = timed(itertools.repeat(Turn(11, 3)))
    assert found["iterations"] == 60
    assert set(arrays["wall_ns"].tolist()) == {800 * US}
    uncut, _, _ = timed(None)
    assert found["region_ns"] / found["units"] == pytest.approx(uncut["region_ns"] / uncut["units"], rel=0.01)


@pytest.mark.parametrize("turn", [Turn(8, 3), Turn(1, 9), Turn(55, 1)])
def test_what_comes_once_in_a_cadence_has_its_share_however_turns_fall(timed: Any, turn: Turn) -> None:
    found, arrays, _ = timed(itertools.repeat(turn), iterations=20, cadence=10)
    slow = np.count_nonzero(arrays["wall_ns"] > 2000 * US)
    assert (found["iterations"], slow) == (20, 2)
    assert found["alarm"] is None


def test_a_job_is_timed_from_its_first_step_to_its_last_and_ends_its_region(timed: Any) -> None:
    found, arrays, work = timed(itertools.repeat(Turn(4, 0)), shape="job", last=10)
    assert (found["iterations"], found["units"], work.done()) == (10, 10.0, True)
    assert len(arrays["wall_ns"]) == 10


@pytest.mark.parametrize("turn", [Turn(400), Turn(1, 1)])
def test_where_rare_work_is_known_warm_up_ends_when_steps_rest_and_its_first_time_is_not_timed(
    timed: Any, turn: Turn
) -> None:
    found, arrays, _ = timed(itertools.repeat(turn), iterations=200, cadence=200, rare=(199,))
    assert found["warmup_iterations"] < 200
    slow = [lap for lap in arrays["wall_ns"].tolist() if lap > 2000 * US]
    assert len(slow) == 1 and 5800 * US <= slow[0] < 6000 * US, "the second time, without the 2 ms"
    assert found["iterations"] == 200


def test_a_rare_place_that_warm_up_has_come_to_is_timed_at_once(timed: Any) -> None:
    found, arrays, work = timed(itertools.repeat(Turn(400)), iterations=10, cadence=10, rare=(3,))
    assert np.count_nonzero(arrays["wall_ns"] > 2000 * US) == 1
    assert work.steps == found["warmup_iterations"] + 10


def test_what_others_had_of_the_core_in_warm_up_is_no_rare_work_and_no_long_step(
    timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour takes 3 ms in each seventh iteration."""
    told: list[Any] = []
    warm_up = regions.Timing.warm_up

    def told_then(timing: regions.Timing, folder: Path) -> None:
        warm_up(timing, folder)
        told.append(timing.ready())

    monkeypatch.setattr(regions.Timing, "warm_up", told_then)
    found, _, _ = timed(itertools.repeat(Turn(60)), iterations=20, cadence=20, neighbour=7)
    assert told[0].rare == (19,) and told[0].step_ns == 800 * US
    assert found["warmup_s"] == pytest.approx(found["warmup_iterations"] * 800e-6 + 7e-3, rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_cold_places_are_timed_as_often_as_others_but_not_the_first_time(seed: int) -> None:
    rng = random.Random(seed)
    cadence, each, done = rng.choice([1, 2, 13, 55]), rng.randrange(1, 4), rng.randrange(10)
    cold = rng.sample(range(cadence), rng.randrange(min(cadence, 3) + 1))
    wanted, at = Wanted(cadence, cadence * each, done, cold), done
    visited = {place for place in cold if place < done}
    while wanted.left:
        untimed = rng.randrange(3)
        wanted.pass_over(untimed)
        untimed += wanted.skip()
        visited |= {(at + step) % cadence for step in range(untimed)}
        at += untimed
        before = len(wanted.places)
        at += wanted.take(rng.randrange(1, 9))
        assert set(wanted.places[before:]) & set(cold) <= visited
        visited |= set(wanted.places[before:])
    assert Counter(wanted.places) == dict.fromkeys(range(cadence), each)


@pytest.mark.parametrize(("steps", "done"), [(1, 9), (4, 5), (4, 15)])
def test_a_place_that_was_cold_the_first_time_costs_no_third_run_of_its_cadence(
    steps: int, done: int
) -> None:
    wanted, untimed, longest = Wanted(55, 55, done, cold=[54]), 0, 0
    while wanted.left:
        wanted.pass_over(1)
        untimed += 1
        before, left = wanted.left, steps
        while left > 0 and wanted.left:
            untimed += wanted.skip()
            left -= wanted.take(left)
        longest = max(longest, before - wanted.left)
    assert untimed <= 55 + steps and longest <= steps + 1
