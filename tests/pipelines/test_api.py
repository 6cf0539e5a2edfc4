"""The Python interface: from a few options to effects, on a simulated machine; nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import SimulatedLaunch, cost

from pipelines import api
from pipelines.execution import launch, notebook_progress
from pipelines.execution.launch import Launched
from workloads.errors import PerfsweepError

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


@pytest.mark.slow
def test_the_same_call_measures_nothing_again(machine: SimulatedLaunch) -> None:
    api.sweep(**OPTIONS)
    launched = list(machine.launched)
    api.sweep(**OPTIONS)
    assert machine.launched == launched


@pytest.mark.slow
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


def test_mappings_set_the_fields_of_a_part() -> None:
    sweep = api.sweep(
        **{**OPTIONS, "workload": {"name": "toys.spinner:Spinner", "size": 32}, "toggles": {"slab": 2}},
        measure={"seed": 3},
        cluster={"executor": "inprocess"},
    )
    planned = sweep.manifest.sweep
    assert (planned.config["size"], planned.measure.seed, planned.measure.rounds) == (32, 3, 6)
    assert {arm.levels["slab"] for arm in sweep.manifest.arms} == {2}


@pytest.mark.slow
def test_a_report_is_a_path_and_shows_its_tables_in_a_notebook() -> None:
    report = api.sweep(**OPTIONS).report()
    assert Path(report) == Path(str(report)) == report.path == Path("runs/spinner-ablation/report.html")
    page = report._repr_html_()
    assert ">work=<wbr>single</th>" in page
    assert 'href="runs/spinner-ablation/report.html"' in page


def test_a_sweep_and_its_comparison_show_their_tables() -> None:
    sweep = api.sweep(**OPTIONS)
    assert repr(sweep) == "Sweep('runs/spinner-ablation': workload toys.spinner:Spinner, 2 arms, 1 effects)"
    assert sweep._repr_html_() == sweep.comparison._repr_html_()
    assert ">work=<wbr>single</th>" in sweep.comparison._repr_html_()
    assert "work=single" in repr(sweep.comparison) and "\x1b" not in repr(sweep.comparison)


def test_a_notebook_is_shown_how_far_it_is_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[dict[str, str]] = []

    def display(content: dict[str, str], **rest: object) -> None:
        shown.append(content)

    monkeypatch.setattr(notebook_progress, "notebook_display", lambda: display)
    api.sweep(**OPTIONS)
    assert "0 of 18 trials" in shown[0]["text/plain"]
    assert capsys.readouterr().out == ""
