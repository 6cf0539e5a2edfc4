"""The Python interface: from a few options to effects, on a simulated machine; nothing is printed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from measured import SimulatedLaunch, cost
from recorded import build

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.execution import executor_choice, launch
from perfsweep.pipelines.measured import NotebookWatch, Watch
from perfsweep.pipelines.report import notebook
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.workloads.api import Levels
from perfsweep.workloads.errors import ConfigError, PerfsweepError

OPTIONS = {
    "workload": "toys.spinner:Spinner",
    "axes": {"work": ["single"]},
    "rounds": 6,
    "tracking": "disabled",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep that is measured, to look at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("measured"))
        patch.setattr(launch, "launch", SimulatedLaunch(cost))
        api.sweep(**OPTIONS)
    return folder


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimulatedLaunch:
    monkeypatch.chdir(tmp_path)
    simulated = SimulatedLaunch(cost)
    monkeypatch.setattr(launch, "launch", simulated)
    return simulated


def test_a_sweep_is_measured_and_its_effects_are_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    sweep = api.sweep(**OPTIONS)
    (effect,) = sweep.effects.to_dicts()
    assert (effect["name"], effect["rounds"], effect["todo"]) == ("work=single", 6, "results not checked")
    assert effect["speed"] == pytest.approx(2.0, rel=0.1)
    (whole,) = sweep.effects_all.to_dicts()
    assert (whole["level"], whole["ratio"]) == ("single", pytest.approx(0.5, rel=0.1))
    assert sweep.best is None and sweep.recommended is None, "its results are not known to be the same"
    assert sweep.folder.report_file.exists()
    assert capsys.readouterr().out == ""


TWO = {**OPTIONS, "workload": "toys.tunable:Tunable", "axes": {"fuse": ["on"], "slab": [4]}}


def both_gain(levels: Levels) -> float:
    return (0.5 if levels["fuse"] == "on" else 1.0) * (0.6 if levels["slab"] == 4 else 1.0)


def test_two_winners_are_measured_together_after_the_sweep(machine: SimulatedLaunch) -> None:
    machine.cost_of = both_gain
    sweep = api.sweep(**TWO)
    names = {one.partition("/")[0] for one in machine.launched}
    assert names == {sweep.folder.path.name, f"{sweep.folder.path.name}-together"}
    found = sweep.comparison.together
    assert found is not None and found.whole.speed == pytest.approx(1 / 0.3, rel=0.1)
    assert "All winners together" in sweep.folder.markdown_file.read_text()


@pytest.mark.slow
def test_the_same_call_measures_no_winners_again(machine: SimulatedLaunch) -> None:
    machine.cost_of = both_gain
    api.sweep(**TWO)
    launched = list(machine.launched)
    api.sweep(**TWO)
    assert machine.launched == launched and any("-together/" in one for one in launched)


def test_winners_stay_apart_where_that_is_asked_for(machine: SimulatedLaunch) -> None:
    machine.cost_of = both_gain
    sweep = api.sweep("sweep.together=false", **TWO)
    assert len(sweep.comparison.winners) == 2
    assert sweep.comparison.together is None
    assert {one.partition("/")[0] for one in machine.launched} == {sweep.folder.path.name}


def test_a_sweep_that_is_there_is_opened_and_compared_without_measuring(
    machine: SimulatedLaunch, measured: Path
) -> None:
    path = measured / "runs/spinner-ablation"
    assert api.open_sweep(path).manifest.sweep.measure.rounds == 6
    assert api.compare(path).reference
    assert machine.launched == []


@pytest.mark.slow
def test_the_same_call_measures_nothing_again(machine: SimulatedLaunch) -> None:
    api.sweep(**OPTIONS)
    launched = list(machine.launched)
    api.sweep(**OPTIONS)
    assert machine.launched == launched


def test_a_trial_without_times_that_was_damaged_since_is_made_again(
    machine: SimulatedLaunch, measured: Path
) -> None:
    shutil.copytree(measured, ".", dirs_exist_ok=True, symlinks=True)
    damaged = next(Path("runs/spinner-ablation").glob("trials/*/p000-evidence-a0/record.json"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    api.sweep(**OPTIONS)
    assert machine.launched == ["spinner-ablation/p000"]


@pytest.mark.slow
def test_a_watch_hears_of_the_plan_before_anything_is_measured(machine: SimulatedLaunch) -> None:
    class Heard(Watch):
        def begins(self, planned: api.Planned, unfinished: dict[str, int]) -> None:  # type: ignore[override]
            assert not machine.launched
            self.unfinished = unfinished

    watch = Heard()
    api.sweep(watch=watch, **OPTIONS)
    assert watch.unfinished == {"p000": 6}


def test_a_pack_that_breaks_off_is_an_error_after_the_report_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "launch", lambda *arguments: {"p000": "killed"})
    with pytest.raises(PerfsweepError, match="pack p000 broke off; the end of its log: killed"):
        api.sweep(**OPTIONS)
    assert list(tmp_path.glob("runs/*/report.html"))


def test_ctrl_c_is_the_callers(machine: SimulatedLaunch) -> None:
    machine.break_at = "p000"
    with pytest.raises(KeyboardInterrupt):
        api.sweep(**OPTIONS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"round": 6}, "^round is unknown"),
        ({"rounds": "many"}, "many"),
        ({"workload": "toys.spinner:Spiner"}, "Spiner"),
        ({"toggles": {"slab": "huge"}}, "huge"),
        ({"axes": {"wrk": ["single"]}}, "wrk"),
        ({"sweep": "ablaton"}, "ablaton"),
        ({"measure": {"sed": 3}}, "sed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_is_one_error_without_a_chain(options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        api.sweep(**{**OPTIONS, **options})
    assert told.value.__cause__ is None
    assert told.value.__context__ is None or told.value.__suppress_context__


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
def test_a_report_is_a_path_that_a_notebook_links() -> None:
    report = api.sweep(**OPTIONS).report()
    assert Path(report) == Path(str(report)) == report.path == Path("runs/spinner-ablation/report.html")
    page = report._repr_html_()
    assert "<table" not in page
    assert 'href="runs/spinner-ablation/report.html"' in page


def test_a_sweep_and_its_comparison_show_their_tables(
    measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(measured)
    sweep = api.open_sweep("runs/spinner-ablation")
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

    monkeypatch.setattr(notebook, "notebook_display", lambda: display)
    api.sweep(**OPTIONS)
    assert "0 of 18 trials" in shown[0]["text/plain"]
    assert capsys.readouterr().out == ""


def test_a_sweep_is_opened_with_other_columns_or_told_which_there_are(tmp_path: Path) -> None:
    built = build(tmp_path / "demo")
    shown = api.open_sweep(tmp_path / "demo", ["p95", "energy"])
    assert shown.manifest.sweep.report.columns == ["p95", "energy"]
    assert shown.manifest.arms == built.manifest.arms
    assert api.open_sweep(str(tmp_path / "demo")).manifest.sweep.report.columns == []
    with pytest.raises(ConfigError, match=r"^report\.columns=p96 is unknown; choose from: .*energy, .*p95"):
        api.open_sweep(tmp_path / "demo", ["p95", "p96"])


def test_a_notebook_has_one_line_of_counts_that_changes_and_a_line_for_each_notice() -> None:
    shown: list[tuple[str, object, object]] = []

    def display(content: dict[str, str], raw: bool, display_id: object = None, update: object = None) -> None:
        assert raw, "it is a mapping of kinds to texts"
        shown.append((content["text/plain"], display_id, update))

    watch = NotebookWatch(display)  # type: ignore[arg-type]
    watch.counts("2 pending")
    watch.notice("p000: submitted again")
    watch.counts("2 running")
    (first, line, begun), notice, (second, same, changed) = shown
    assert (first, begun, second, changed) == ("2 pending", False, "2 running", True)
    assert line == same is not None
    assert notice == ("p000: submitted again", None, None)


def test_what_the_shell_says_of_wandb_is_taken_or_contradicted_unless_nothing_is_published(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    monkeypatch.setenv("WANDB_ENTITY", "team")
    told = api.prepare_tracking(asked := command())
    assert asked.tracking.entity == "team"
    assert any(line.startswith("W&B: WANDB_PROJECT=theirs of your shell contradicts") for line in told)
    off = command(tracking=TrackingConfig(mode="disabled"))
    assert api.prepare_tracking(off) == []


@pytest.mark.parametrize(
    ("executor", "network", "mode", "warned"),
    [
        ("slurm", False, "online", True),
        ("slurm", True, "online", False),
        ("slurm", None, "online", False),
        ("slurm", False, "offline", False),
        ("inprocess", False, "online", False),
    ],
)
def test_nodes_without_a_network_cannot_publish_while_they_measure(
    command, monkeypatch: pytest.MonkeyPatch, executor: str, network: bool | None, mode: str, warned: bool
) -> None:
    monkeypatch.setattr(executor_choice, "choose", lambda cluster, dry_run: executor_choice.Choice(executor))
    monkeypatch.setattr(api, "prepare_tracking", lambda command: [])
    cluster = ClusterConfig(executor=executor, network=network)
    asked = command(
        DesignConfig("one_at_a_time", levels={"work": ["single"]}),
        cluster=cluster,
        tracking=TrackingConfig(mode=mode),
        measure={"rounds": 6},
    )
    notices = api.plan(asked, "").notices
    assert any("nodes do not reach W&B; choose tracking=offline" in line for line in notices) is warned
