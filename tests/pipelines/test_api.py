"""The Python interface: from a few options to effects, on a simulated machine; nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import SimulatedLaunch, cost

from pipelines import api
from pipelines.execution import launch
from pipelines.execution.launch import Launched
from workloads.errors import ConfigError, PerfsweepError

OPTIONS = {
    "workload": "toys.spinner:Spinner",
    "axes": {"work": ["single"]},
    "rounds": 6,
    "tracking": "disabled",
}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedLaunch:
    monkeypatch.chdir(tmp_path)
    simulated = SimulatedLaunch(cost)
    monkeypatch.setattr(launch, "launch", simulated)
    return simulated


def test_a_sweep_is_measured_and_its_effects_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = api.sweep(**OPTIONS)
    (effect,) = sweep.effects.filter(sweep.effects["toggle"] == "work").to_dicts()
    assert (effect["level"], effect["rounds"]) == ("single", 6)
    assert effect["ratio"] == pytest.approx(0.5, rel=0.1)
    assert sweep.folder.report_file.exists()
    assert capsys.readouterr().out == ""


def test_a_sweep_that_is_there_is_opened_and_compared_without_measuring(machine: SimulatedLaunch) -> None:
    path = api.sweep(**OPTIONS).folder.path
    launched = list(machine.launched)
    assert api.open_sweep(path).manifest.sweep.measure.rounds == 6
    assert api.compare(path).reference
    assert machine.launched == launched


def test_the_same_call_measures_nothing_again(machine: SimulatedLaunch) -> None:
    api.sweep(**OPTIONS)
    launched = list(machine.launched)
    api.sweep(**OPTIONS)
    assert machine.launched == launched


def test_a_watch_hears_of_the_plan_before_anything_is_measured(machine: SimulatedLaunch) -> None:
    class Heard(api.Watch):
        def begins(self, planned: api.Planned, unfinished: dict[str, int]) -> None:  # type: ignore[override]
            assert not machine.launched
            self.unfinished = unfinished

    watch = Heard()
    api.sweep(watch=watch, **OPTIONS)
    assert watch.unfinished == {"p000": 6}


def test_a_pack_that_breaks_off_is_an_error_after_the_report_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "launch", lambda *arguments: Launched({"p000": "killed"}))
    with pytest.raises(PerfsweepError, match="pack p000 broke off; the end of its log: killed"):
        api.sweep(**OPTIONS)
    assert list(tmp_path.glob("runs/*/report.html"))


def test_ctrl_c_is_the_callers(machine: SimulatedLaunch) -> None:
    machine.break_at = "p000"
    with pytest.raises(KeyboardInterrupt):
        api.sweep(**OPTIONS)


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="round is unknown; choose from: workload, toggles"):
        api.sweep(workload="digits", round=3)


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ({"workload": "digits", "sweep": "demo"}, ["workload=digits", "sweep=demo"]),
        ({"rounds": 8, "precision": None}, ["measure.rounds=8", "measure.precision=null"]),
        ({"axes": {"amp": ["off", "bf16"]}}, ['axes.amp=["off", "bf16"]']),
        ({"cluster": {"gpus": 1}, "dry_run": True}, ["cluster.gpus=1", "dry_run=true"]),
    ],
    ids=str,
)
def test_options_by_name_are_overrides(options: dict, overrides: list[str]) -> None:
    assert api._as_overrides(options) == overrides
