"""The workspace as code, and views that a server keeps: what is shown, replaced, or written to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback
from recorded import Built, build
from typed import ended
from written import found_in

from perfsweep.pipelines.publish import dashboard
from perfsweep.pipelines.publish.dashboard import Identity, save_view, specification, view_of, workspace
from perfsweep.pipelines.publish.server import Account
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.pipelines.store.records import Effect, Manifest
from perfsweep.workloads.errors import ConfigError


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


def test_accessors_survive_wandb_workspaces_own_reading(manifest: Manifest) -> None:
    """What it writes it must read back to the same: it drops names that it does not understand."""
    import wandb_workspaces.workspaces as ws

    view = view_of(manifest)
    made = workspace(view, "team", "speed")._to_model()
    again = ws.Workspace._from_model(made)._to_model()
    written, read = (json.loads(model.spec.model_dump_json(by_alias=True)) for model in (made, again))
    assert _charts({"spec": read}).keys() == _charts({"spec": written}).keys()
    for title, panel in _charts({"spec": written}).items():
        ours, theirs = panel["config"], _charts({"spec": read})[title]["config"]
        for name in ("metrics", "xAxis", "xAxisMetric", "groupBy", "columns", "mediaKeys", "metricRegex"):
            assert theirs.get(name) == ours.get(name), (title, name)
    text = json.dumps(written)
    shown = [panel for _, panels in view.sections for panel in panels]
    lists = (getattr(panel, name, None) for panel in shown for name in ("y", "metrics", "media_keys"))
    metrics = {str(metric) for some in lists if isinstance(some, list) for metric in some}
    assert "iter/loss" in metrics
    for name in metrics | {"iter/ms_.*", "bench_ms_per_unit", "config.toggles.slab_size"}:
        assert json.dumps(name.removeprefix("config.toggles."))[1:-1] in text, name


def _charts(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    sections = spec["spec"]["section"]["panelBankConfig"]["sections"]
    return {
        panel["config"].get("chartTitle", panel["viewType"]): panel
        for one in sections
        for panel in one["panels"]
    }


def told(spec: dict[str, Any]) -> Iterator[str]:
    """What a workspace is that would be another with other arguments, a chart a line."""
    yield f"{spec['displayName']} of {spec['entity']}/{spec['project']}"
    for one in spec["spec"]["section"]["panelBankConfig"]["sections"]:
        yield f"{one['name']}, open: {one['isOpen']}"
        yield from (f"  {panel['viewType']} {json.dumps(panel['config'])}" for panel in one["panels"])
    (runs,) = spec["spec"]["section"]["runSets"]
    yield json.dumps({name: runs[name] for name in ("filters", "grouping", "sort")})
    yield f"at most {spec['spec']['section']['settings']['maxRuns']} runs\n"


def test_the_specification_says_it_in_w_and_bs_words(manifest: Manifest, tmp_path: Path) -> None:
    spec, file = (
        specification(workspace(view_of(manifest), "team", "speed")),
        Path(__file__).with_name("dashboard.txt"),
    )
    assert found_in(file, "\n".join(told(spec)), tmp_path)
    assert "null" not in json.dumps(spec), "what is not said is left out"


def test_many_effects_have_several_charts_and_jobs_a_discarded_one(manifest: Manifest) -> None:
    many = [manifest.effects[0].model_copy(update={"level": str(n)}) for n in range(26)]
    declared = manifest.sweep.declared.model_copy(update={"shape": "job"})
    sweep = manifest.sweep.model_copy(update={"declared": declared})
    plan = manifest.model_copy(update={"effects": (*many, many[0]), "sweep": sweep})
    charts = dict(view_of(plan).sections)
    bars = [panel for panel in charts["effects"] if type(panel).__name__ == "BarPlot"]
    title = "speed of each level against its base"
    assert [(bar.title, len(bar.metrics)) for bar in bars] == [
        (f"{title} (1 of 2)", 25),
        (f"{title} (2 of 2)", 1),
    ]
    assert charts["iteration time"][-1].title == "discarded job, ms"


def run(*arguments: str) -> int:
    return ended("dashboard", *arguments)


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
    for _ in range(2):  # which replaces the view
        assert run(str(sweep.folder.path), "--project", "own") == 0
    assert capsys.readouterr().out.startswith(f"dashboard: {backend.url}/team/own?nw=")
    (view,) = backend.store.views.values()
    assert (view["entityName"], view["projectName"], view["displayName"]) == ("team", "own", "perfsweep demo")
    assert {name for name in os.environ if name.startswith("WANDB_")} == {"WANDB_BASE_URL", "WANDB_API_KEY"}


ONLINE = TrackingConfig(mode="online", project="speed", entity="own", base_url="http://there/")


class Saves:
    """Saves a view, unless it is in the place of one that was deleted."""

    def __init__(self, deleted: bool = False, refused: bool = False) -> None:
        self.deleted, self.refused = deleted, refused
        self.asked: list[tuple[str, Identity | None]] = []

    def __call__(self, entity: str, known: Identity | None) -> tuple[str, Identity]:
        self.asked.append((entity, known))
        if self.refused or (self.deleted and known):
            raise ValueError("no such view")
        return "http://there/view", {"id": f"{len(self.asked)}"}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "probe", lambda tracking: Account(entity="team"))


@pytest.mark.usefixtures("account")
def test_one_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    file, saves = tmp_path / "views.json", Saves(deleted=True)
    save_view(ONLINE, file, "view", saves)
    save_view(ONLINE, file, "view", saves)
    assert saves.asked == [("team", None), ("team", {"id": "1"}), ("team", None)]
    assert json.loads(file.read_text()) == {"http://there/team/speed": {"id": "3"}}
    file.write_text("{")
    save_view(ONLINE, file, "view", saves)
    assert saves.asked[3:] == [("team", None)], "of a damaged file it is another view"


@pytest.mark.usefixtures("account")
def test_a_server_that_refuses_it_or_cannot_be_used_leaves_a_file_as_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"^http://there did not take the view \(.*no such view") as refused:
        save_view(ONLINE, tmp_path / "views.json", "view", Saves(refused=True))
    assert str(refused.value).endswith("; --file PATH writes it without a server")
    monkeypatch.setattr(dashboard, "probe", lambda tracking: Account(problem="no key"))
    with pytest.raises(ConfigError, match=r"^no key; --file PATH writes the specification without a server$"):
        save_view(ONLINE, tmp_path / "views.json", "view", Saves())
