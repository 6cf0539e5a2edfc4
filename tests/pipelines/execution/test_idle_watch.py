"""Power at rest: watched once, before a pack's first round."""

from __future__ import annotations

from pathlib import Path

import pytest
from powercap import FakePowercap

from perfsweep.pipelines.execution import idle_watch
from perfsweep.pipelines.execution.idle_watch import REST_S, idle_power
from perfsweep.pipelines.trial.machine import energy
from perfsweep.workloads.api import Device


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePowercap:
    root = tmp_path / "powercap"
    root.mkdir()
    monkeypatch.setattr(energy, "POWERCAP", root)
    monkeypatch.setattr(idle_watch, "shared_by", lambda *given: "")  # whatever else this machine does
    return FakePowercap(root)


class Machine:
    """Draws 20 W at rest by a clock of the test's; a counter changes every `step_s`."""

    def __init__(self, powercap: FakePowercap, step_s: float) -> None:
        self._powercap, self._step_s, self._counted = powercap, step_s, 0
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        self._go_on(self._step_s / 10)
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._go_on(seconds)

    def _go_on(self, seconds: float) -> None:
        self.now_s += seconds
        steps = int(self.now_s / self._step_s)
        if steps > self._counted:
            self._powercap.count(package_0=20.0 * (steps - self._counted) * self._step_s)
            self._powercap.count(**{"dram of package-0": 1e-6 * (steps - self._counted)})
            self._counted = steps


@pytest.mark.parametrize(("step_s", "rest_s"), [(0.001, REST_S), (0.1, 3.0)])
def test_a_rest_is_as_long_as_its_counters_need(powercap: FakePowercap, step_s: float, rest_s: float) -> None:
    machine = Machine(powercap, step_s)
    found = idle_power(Device(), machine.sleep, machine.now)
    assert found.watts["package-0"] == pytest.approx(20.0, rel=0.05)
    assert found.step_s == pytest.approx(step_s, rel=0.2)
    assert machine.slept == [pytest.approx(rest_s, rel=0.2)] and found.source == "RAPL"


def test_a_machine_without_counters_does_not_rest_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    slept: list[float] = []
    found = idle_power(Device(), slept.append)
    assert slept == [] and found.watts == {} and "no RAPL counters" in found.withheld


def test_a_machine_that_works_for_others_has_no_power_at_rest(
    powercap: FakePowercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_watch, "shared_by", lambda *given: "other processes used 1.0 cores")
    machine = Machine(powercap, 0.001)
    found = idle_power(Device(), machine.sleep, machine.now)
    assert found.watts == {} and found.withheld == "other processes used 1.0 cores"
    assert found.step_s is not None  # which has nothing to do with them
