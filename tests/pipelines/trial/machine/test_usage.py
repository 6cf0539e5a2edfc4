"""What the kernel counts of a region, and what NVML tells of a device at work."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clocks import FakeClock

from perfsweep.pipelines.trial.machine import environment, gpus, usage
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.machine.gpus import Gpu
from perfsweep.pipelines.trial.machine.usage import DISPLACED_SHARE, Usage
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import regions
from perfsweep.pipelines.trial.timing.regions import Timing

NEIGHBOUR = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"
WORK_NS = 100_000_000


@pytest.fixture
def crowded_core() -> Iterator[None]:
    """This thread pinned to a core, with a neighbour that never rests pinned to the same."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(core)], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        os.sched_setaffinity(0, {core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, allowed)
            busy.kill()


def computed_ns(moment: usage.Moment) -> int:
    return sum(on_core for on_core, _ in moment.threads.values())


def compute(work_ns: int) -> Usage:
    """What the kernel counts while this process gets so much time on cores, by the kernel's own figure."""
    before = after = usage.moment()
    while computed_ns(after) - computed_ns(before) < work_ns:
        after = usage.moment()
    return Usage.between(before, after)


@pytest.mark.skipif(not usage.moment().threads, reason="the kernel keeps no schedstat")
def test_a_busy_neighbour_on_the_core_shows_as_run_delay(crowded_core: None) -> None:
    there = compute(WORK_NS)
    assert there.run_delay_ns is not None
    assert there.run_delay_ns > DISPLACED_SHARE * WORK_NS
    assert there.displaced(there.run_delay_ns + WORK_NS)


IN_GROUP = """
import os, sys, time
from pathlib import Path
from perfsweep.pipelines.trial.timing.clock import HostClock
from perfsweep.pipelines.trial.timing.recorder import Recorder

recorder = Recorder(HostClock())
(Path(sys.argv[1]) / "cgroup.procs").write_text(str(os.getpid()))
recorder.start()
for _ in range(40):
    until_ns = time.thread_time_ns() + 2_500_000
    while time.thread_time_ns() < until_ns:
        pass
    recorder.lap()
recorder.stop()
series = recorder.series()
print(series.region_ns, series.usage.own_delay_ns, series.region_cpu_ns)
"""


def new_group(parent: Path, file: str, quota: str) -> Path | None:
    """A control group with a quota of CPU time; None where the kernel makes none there for this user."""
    folder = parent / f"perfsweep-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        return None
    if (folder / file).exists():  # as the kernel makes it, and no mere folder
        with suppress(OSError):
            (folder / file).write_text(quota)
            return folder
    folder.rmdir()
    return None


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """A control group that may use a fifth of a core, of the version that this machine has."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    root = Path("/sys/fs/cgroup")
    group = new_group(root / own, "cpu.max", "10000 50000") or new_group(
        root / "cpu", "cpu.cfs_quota_us", "20000"
    )
    if group is None:
        pytest.skip("no control group with a quota of CPU time can be made here")
    yield group
    group.rmdir()


@pytest.mark.skipif(not usage.moment().threads, reason="the kernel keeps no schedstat")
def test_what_a_quota_of_cpu_time_takes_is_lost_and_no_time_of_the_arm(limited_group: Path) -> None:
    words = [sys.executable, "-c", IN_GROUP, str(limited_group)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    region_ns, lost_ns, cpu_ns = map(int, told.split())
    assert region_ns > 2 * cpu_ns, "the quota stopped it"
    assert region_ns - lost_ns == pytest.approx(cpu_ns, rel=0.2)


def test_without_schedstat_frequent_displacements_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "_thread_times", dict)
    moment = usage.moment()
    assert Usage.between(moment, moment).run_delay_ns is None
    second = 1_000_000_000
    assert Usage(displacements=100).displaced(second)
    assert not Usage(displacements=5).displaced(second)
    assert not Usage(run_delay_ns=0, displacements=10_000).displaced(second), "what is known is believed"


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
