"""The workspace as code: what it shows, that it is the same every time, and needs no server."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loopback import Action, Fault, Loopback
from recorded import Built, build

from pipelines.cli import main
from pipelines.publish.dashboard import View, specification, view_of
from pipelines.store.records import Effect, Manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """The plan of a sweep over precision and slab size."""
    found = build(tmp_path / "demo").manifest
    effect = Effect(
        id="e",
        design="one_at_a_time",
        toggle="amp",
        level="bf16",
        pairs=((found.arms[1].id, found.arms[0].id),),
    )
    return found.model_copy(update={"effects": (effect,)})


def panels(view: View) -> dict[str, list[str]]:
    return {name: [panel.kind for panel in shown] for name, shown in view.sections}


def test_it_shows_curves_effects_toggles_frontiers_and_a_comparer(manifest: Manifest) -> None:
    assert panels(view_of(manifest)) == {
        "iteration time": ["line", "line", "line"],
        "effects": ["bar", "scatter", "media"],
        "toggles": ["parallel", "importance"],
        "frontier of slab_size": ["scatter", "scatter"],
        "detail": ["comparer"],
    }


def test_a_sweep_without_numbers_has_no_frontier(manifest: Manifest) -> None:
    arms = tuple(arm.model_copy(update={"levels": {"amp": arm.levels["amp"]}}) for arm in manifest.arms)
    view = view_of(manifest.model_copy(update={"arms": arms}))
    assert "frontier of slab_size" not in panels(view)
    (toggles,) = [shown for name, shown in view.sections if name == "toggles"]
    assert toggles[0].metrics == ("config.toggles.amp", "bench_median_ms")


def _charts(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    return {
        panel["config"].get("chartTitle", panel["viewType"]): panel
        for one in sections
        for panel in one["panels"]
    }


def test_the_specification_says_it_in_w_and_bs_words(manifest: Manifest) -> None:
    spec = specification(view_of(manifest), "team", "speed")
    assert (spec["entity"], spec["project"], spec["displayName"]) == ("team", "speed", "perfsweep demo")
    charts = _charts(spec)
    curve = charts["time of an iteration, ms"]
    assert curve["viewType"] == "Run History Line Plot"
    wanted = {
        "xAxis": "iter/index",
        "metrics": ["iter/ms"],
        "groupBy": "variant.value",
        "groupAgg": "median",
        "yLogScale": True,
    }
    assert {name: curve["config"][name] for name in wanted} == wanted
    bars = charts["speed-up of each level against its base"]["config"]
    assert (bars["metrics"], bars["vertical"]) == (["effect/one_at_a_time/amp_bf16/speedup"], False)
    columns = [column["accessor"] for column in charts["levels and median time"]["config"]["columns"]]
    assert columns == [
        "config:toggles.value.amp",
        "config:toggles.value.slab_size",
        "summary:bench_median_ms",
    ]
    assert "Run Comparer" in {chart["viewType"] for chart in charts.values()}


def test_it_shows_the_runs_of_this_sweep_grouped_by_arm(manifest: Manifest) -> None:
    (runs,) = specification(view_of(manifest), "team", "speed")["spec"]["section"]["runSets"]
    (only,) = runs["filters"]["filters"]
    assert (only["key"]["name"], only["op"], only["value"]) == ("group", "=", "demo")
    assert [key["name"] for key in runs["grouping"]] == ["jobType", "variant.value"]


def test_equal_views_give_equal_specifications_and_others_do_not(manifest: Manifest) -> None:
    view = view_of(manifest)
    assert specification(view, "team", "speed") == specification(view, "team", "speed")
    assert specification(replace(view, group="other"), "team", "speed") != specification(
        view, "team", "speed"
    )


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["dashboard", *arguments])
    return int(str(ended.value.code))


def test_the_command_writes_a_file_without_a_server(
    sweep: Built, tmp_path: Path, shell: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "view.json"
    assert run(str(sweep.folder.path), "--entity", "others", "--project", "own", "--file", str(file)) == 0
    spec = json.loads(file.read_text())
    assert (spec["entity"], spec["project"]) == ("others", "own")


def test_the_command_saves_it_on_the_server(
    sweep: Built, backend: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(sweep.folder.path), "--project", "own") == 0
    assert capsys.readouterr().out.startswith(f"dashboard: {backend.url}/team/own?nw=")
    (view,) = backend.store.views.values()
    assert (view["entityName"], view["projectName"], view["displayName"]) == ("team", "own", "perfsweep demo")
    assert {name for name in os.environ if name.startswith("WANDB_")} == {"WANDB_BASE_URL", "WANDB_API_KEY"}


def test_built_again_it_replaces_its_view_and_elsewhere_it_makes_another(
    sweep: Built, backend: Loopback
) -> None:
    for project in ("own", "own", "other"):
        assert run(str(sweep.folder.path), "--project", project) == 0
    assert sorted(view["projectName"] for view in backend.store.views.values()) == ["other", "own"]


@pytest.mark.parametrize("lost", ["the view", "our note"])
def test_a_view_that_is_lost_is_made_anew(sweep: Built, backend: Loopback, lost: str) -> None:
    assert run(str(sweep.folder.path)) == 0
    if lost == "our note":
        (sweep.folder.wandb_dir / "dashboards.json").write_text("{")
    backend.store.views.clear()
    assert run(str(sweep.folder.path)) == 0
    assert len(backend.store.views) == 1


def test_a_server_that_refuses_it_is_one_line(
    sweep: Built, backend: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    with backend.showing(Fault("UpsertView", Action.STATUS, status=403)):
        assert run(str(sweep.folder.path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{backend.url} did not take the dashboard" in line
    assert line.endswith("--file PATH writes it without a server")


def test_without_an_account_the_way_out_is_named(
    sweep: Built, shell: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert run(str(sweep.folder.path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no API key for http://127.0.0.1:9" in line
    assert "--file PATH writes the specification without a server" in line
