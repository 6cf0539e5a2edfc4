"""How long an iteration of evidence takes, what is known of a job, and the share of a device's peak."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.machine.energy import Spent
from perfsweep.pipelines.trial.machine.usage import Moment, moment
from perfsweep.pipelines.trial.timing.iterations import Duration, beat_of, over_a_cadence
from perfsweep.pipelines.trial.timing.regions import job_units, quantity_fields, share_of_peak
from perfsweep.workloads.api import Device, Work
from perfsweep.workloads.peaks import PEAKS


class Crowded(FakeClock):
    """A clock of one thread that waits for its core for `delay_ns` of what passes."""

    delay_ns = 0
    counts = moment().counts

    def usage(self) -> Moment:  # type: ignore[override]
        return Moment({1: (self.time_ns, self.delay_ns)}, self.counts)

    def taken_bytes(self) -> int:
        return self.memory_bytes

    def pass_time(self, wall_ns: int, delay_ns: int = 0) -> None:
        self.advance(wall_ns)
        self.delay_ns += delay_ns


@pytest.mark.parametrize("delay_ns", [0, 9_000_000], ids=["alone", "others have the core nine times as long"])
def test_time_for_which_others_have_the_core_is_no_part_of_an_iteration(delay_ns: int) -> None:
    clock = Crowded(cpu_share=0.0)
    duration = Duration(clock, skipped=1)
    for own_ns in (50_000_000, 1_000_000, 3_000_000):  # the first one warms up
        clock.launch(7_000_000)  # what a device still had to do is no part either
        with duration:
            clock.pass_time(own_ns + delay_ns - 400_000, delay_ns)
            clock.launch(400_000)
    assert duration.mean_ns == 2_000_000


class Saving:
    """Steps of a millisecond, and of nine where it saves: the last of four."""

    cadence = 4

    def __init__(self, clock: Crowded) -> None:
        self.clock, self.steps = clock, 0

    def step(self, clock: object) -> None:
        self.steps += 1
        self.clock.memory_bytes += 65536
        self.clock.pass_time(1_000_000 if self.steps % 4 else 9_000_000)


@pytest.mark.parametrize("done", [0, 3])
def test_what_comes_once_a_cadence_has_its_share_wherever_that_begins(done: int) -> None:
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    workload.steps = done
    assert over_a_cadence(workload, clock, most_s=1.0) == 3_000_000  # type: ignore[arg-type]
    assert workload.steps == done + 4


def test_a_cadence_that_lasts_longer_than_a_region_is_not_waited_for() -> None:
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert over_a_cadence(workload, clock, most_s=0.0015) is None  # type: ignore[arg-type]
    assert workload.steps == 2


class Ending(Saving):
    """The same, of so many steps."""

    last = 30

    def step(self, clock: object) -> None:
        if self.steps == self.last:
            raise RuntimeError("no more")
        super().step(clock)


@pytest.mark.parametrize(("kind", "growth"), [(Saving, 65536.0), (Ending, 0.0)])
def test_the_period_of_a_loop_is_seen_with_the_mean_over_whole_ones_and_what_each_iteration_adds(
    kind: type[Saving], growth: float
) -> None:
    clock = Crowded(cpu_share=0.0)
    found = beat_of(kind(clock), clock)  # type: ignore[arg-type]
    grown = {"time_growth": 0.0, "memory_growth": growth}
    assert found == {"cadence": 4, "iteration_ns": 3_000_000, "quantities": grown}


def test_ranks_look_for_as_long_as_the_first_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = iter([False] * 16 + [True])
    monkeypatch.setattr(ranks, "agree", lambda over, world: next(decided))
    monkeypatch.setattr(ranks, "any_of", lambda over, world: over)
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert beat_of(workload, clock, 2)["cadence"] == 4  # type: ignore[arg-type]
    assert workload.steps == 16


def test_a_loop_that_ends_on_another_rank_is_waited_for_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = iter([False] * 12 + [True])
    monkeypatch.setattr(ranks, "agree", lambda over, world: over)
    monkeypatch.setattr(ranks, "any_of", lambda over, world: next(ended))
    clock = Crowded(cpu_share=0.0)
    workload = Saving(clock)
    assert beat_of(workload, clock, 2)["cadence"] == 4  # type: ignore[arg-type]
    assert workload.steps == 13


class Loop:
    """A job, or a training of some length."""

    cadence_is_known = True

    def __init__(self, shape: str = "steps", length: int | None = None, **counts: float) -> None:
        self.shape, self.length, self.counts = shape, length, counts

    def counters(self) -> dict[str, float]:
        return self.counts


@pytest.mark.parametrize(
    ("work", "units"),
    [
        (Loop("job"), 20.0),
        (Loop("job", sampled_share=0.25), 80.0),
        (Loop("job", sampled_share=0.0), 20.0),
        (Loop(length=100), 400.0),
        (Loop(), None),
    ],
    ids=["a job", "a sample of one", "nothing sampled", "a training", "endless"],
)
def test_the_units_of_a_whole_job_or_training_are_known_where_it_has_an_end(
    work: Loop, units: float | None
) -> None:
    assert job_units(work, 40.0, 10, 2) == units  # type: ignore[arg-type]


@pytest.mark.parametrize(("work", "job"), [(Loop(length=100), {"job_units": 400.0}), (Loop(), {})])
def test_a_record_has_the_devices_of_all_ranks_and_the_units_where_they_are_known(
    work: Loop, job: dict
) -> None:
    ranks: Any = [SimpleNamespace(devices=2), SimpleNamespace(devices=1)]
    spent = [Spent(seconds=2.0, source="NVML", reason="no counter")]
    found = quantity_fields(work, ranks, spent, 40.0, 10, 1)  # type: ignore[arg-type]
    assert found["quantities"] == {"devices": 3.0, **job}
    assert [*found["withheld"].values()] == ["no counter"]


H200 = Device("cuda", count=1, name="NVIDIA H200")
TWO = Device("cuda", count=2, name="NVIDIA H200")
SECOND_NS = 10**9


@pytest.mark.parametrize(("products", "rate"), [("float32", 67e12), ("half", 989e12)])
def test_the_share_is_of_the_rate_for_the_type_of_the_products(products: str, rate: float) -> None:
    # 1e9 FLOPs a unit, 1000 units in half a second: 2e12 FLOP/s.
    assert share_of_peak(Work(1e9, products=products), 1000, SECOND_NS // 2, H200) == pytest.approx(
        2e12 / rate
    )


def test_every_device_of_a_ranks_counts_and_a_shared_one_once() -> None:
    alone = share_of_peak(Work(1e9), 1000, SECOND_NS, H200)
    assert alone == pytest.approx(1e12 / PEAKS["H200"].float32)
    assert share_of_peak(Work(1e9), 1000, SECOND_NS, TWO, world=2) == pytest.approx(alone / 2)
    assert (
        share_of_peak(Work(1e9), 1000, SECOND_NS, TWO, world=1)
        == share_of_peak(Work(1e9), 1000, SECOND_NS, H200, 2)
        == alone
    )


@pytest.mark.parametrize(
    ("work", "device"),
    [
        (Work(), H200),
        (Work(1e9, products="fp8"), Device("cuda", count=1, name="NVIDIA A100")),
        (Work(1e9), Device("cuda", count=1, name="NVIDIA Unheard-Of")),
        (Work(1e9), Device("cpu", name="NVIDIA H200")),
    ],
    ids=["no formula", "no such rate", "no such device", "a host"],
)
def test_what_is_not_known_is_no_share(work: Work, device: Device) -> None:
    assert share_of_peak(work, 1000, SECOND_NS, device) is None
