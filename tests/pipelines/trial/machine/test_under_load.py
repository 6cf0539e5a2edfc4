"""Clocks, power and throttle reasons are those of a device at work, and cost the timed region nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial.machine import environment, gpus
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import regions
from perfsweep.pipelines.trial.timing.regions import Timing

RESTING = Gpu("NVIDIA H100", "GPU-1", 80, (9, 0), sm_clock_mhz=210, power_w=70.0, throttle=("idle",))
WORKING = replace(RESTING, sm_clock_mhz=1755, power_w=690.0, throttle=("power cap",))
ASKING_NS = 3_000_000


class Training:
    """Keeps a device busy for 10 ms with each iteration."""

    shape, cadence = "steps", 5

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.steps = clock, 0

    def child_usage(self) -> None:
        return None

    def step(self, marks: Any) -> None:
        self.steps += 1
        self.clock.advance(1_000)
        self.clock.launch(10_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """A device that NVML can be asked about, which takes a while."""
    clock = FakeClock(events=16)

    def visible() -> tuple[Gpu, ...]:
        clock.advance(ASKING_NS)
        return (WORKING,) if clock._device_free_ns > clock.time_ns else (RESTING,)

    monkeypatch.setattr(gpus, "visible", visible)
    monkeypatch.setattr(regions, "clock_of", lambda workload, device: clock)
    return clock


def test_a_device_is_asked_while_it_works_and_done_before_the_region(clock: FakeClock) -> None:
    training = Training(clock)
    timing = Timing(training, None, None, BufferedLog())  # type: ignore[arg-type]
    timing._look_under_load()
    assert timing._steps == training.steps == 5
    assert timing._loaded == (WORKING,)
    assert clock._device_free_ns <= clock.time_ns  # nothing is left for the region


def reasons(loaded: Gpu) -> tuple[str, ...]:
    usage = HostUsage(0.0, 0.0, 0.0, 8, (RESTING,))
    return environment.disturbance(usage, usage, 10**9, None, None, (loaded,))


@pytest.mark.parametrize("reason", sorted(gpus.DISTURBING)[:1])
def test_what_holds_a_working_gpu_down_disturbs_though_it_rests_before_and_after(reason: str) -> None:
    assert reasons(replace(WORKING, throttle=(reason,))) == (f"GPU-1: {reason}",)
    assert reasons(WORKING) == (), "its own heavy kernels do not"
