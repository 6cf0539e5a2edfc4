"""Energy from a timing trial's region to its record, through the shipped trial, on planted counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from clocks import FakeClock
from planned_sweeps import spec
from powercap import FakePowercap
from toys.odd import Endless

from perfsweep.pipelines.trial.machine import energy, environment
from perfsweep.pipelines.trial.machine.energy import ENERGY_J
from perfsweep.pipelines.trial.scene import Scene
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.timing import regions
from perfsweep.workloads.api import Context, Device, NullClock

ITERATIONS = 8
JOULES_EACH = 0.5
Recorded = Callable[..., dict[str, Any]]


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePowercap:
    root = tmp_path / "powercap"
    root.mkdir()
    monkeypatch.setattr(energy, "POWERCAP", root)
    return FakePowercap(root)


@pytest.fixture
def recorded(tmp_path: Path, powercap: FakePowercap, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A timing trial each of whose iterations draws half a joule, as fields of its record."""

    def run(counter_s: float = 1e-9) -> dict[str, Any]:
        class Drawing(Endless):
            def step(self, clock: Any) -> None:
                powercap.count(package_0=JOULES_EACH)
                super().step(clock)

        levels = {"units": "one"}
        planned = spec(measure={"iterations": ITERATIONS, "warmup_max": 8}, round=0, counter_s=counter_s)
        workload = Drawing()
        workload.setup(Drawing.Config(), levels, Context(Device(), tmp_path, tmp_path))
        workload.step(NullClock())
        monkeypatch.setattr(regions, "clock_for", lambda device: FakeClock(tick_ns=1000))
        log = BufferedLog()
        scene = Scene(workload, Device(), log, 0.0)
        words = (workload, planned, tmp_path, Device(), log)
        return scene.measure(planned, partial(regions.timing_trial, *words))

    return run


def test_only_what_the_region_draws_is_recorded_with_its_source(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "foreign_cores", lambda *ends: None)
    monkeypatch.setattr(energy, "foreign_cores", lambda *ends: None)
    found = recorded()
    assert found["quantities"][ENERGY_J] == pytest.approx(ITERATIONS * JOULES_EACH)
    assert found["withheld"] == {}
    assert found["environment"]["energy"]["source"] == "RAPL"


def test_what_others_drew_too_is_withheld(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "foreign_cores", lambda *ends: 1.5)
    found = recorded()
    assert "other processes used 1.5 cores" in found["withheld"][ENERGY_J]
    assert ENERGY_J not in found["quantities"] and found["quantities"]["devices"] == 0.0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_gpu_draws_what_zeus_says() -> None:
    """Both read the same counter of NVML over the same work: they may differ by its changes at the ends."""
    monitoring = pytest.importorskip("zeus.monitor", reason="needs zeus-ml")
    index = torch.cuda.current_device()
    work = torch.rand(4096, 4096, device="cuda")
    theirs = monitoring.ZeusMonitor(gpu_indices=[index])
    ours = energy.Meter([index])
    theirs.begin_window("work")
    ours.begin()
    for _ in range(3000):
        work @ work
    torch.cuda.synchronize()
    ours.end()
    measured = theirs.end_window("work")
    spent = ours.spent()
    ours.close()
    assert spent.reason == ""
    watts = measured.total_energy / measured.time
    ours_j = sum(spent.joules.values())
    assert abs(ours_j - measured.total_energy) <= 2 * spent.step_s * watts + 0.01 * measured.total_energy
