"""The W&B Report as code: it says what `compare` said, and is replaced when built again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback
from recorded import Built
from typed import ended
from written import found_in

from perfsweep.pipelines.publish.dashboard import specification
from perfsweep.pipelines.publish.wandb_report import document_of, report

TEXT = """# demo

6 rounds; baseline naive: 5.0 ms per example.

- **!** this machine was noisy

## Effects: one at a time

| toggle | speed |
|---|---|
| **TURN ON** |  |
| amp=bf16 | 1.67x faster |

## Answer

- **Use it:** `perfsweep run workload=digits toggles.amp=bf16`

## Profiles

| arm | files |
|---|---|
| baseline | [trace](profiles/a/trace.json), [page](https://ui.perfetto.dev) |
"""


@pytest.fixture
def compared(sweep: Built) -> Built:
    """A sweep of which `compare` wrote the answer."""
    sweep.folder.markdown_file.write_text(TEXT)
    return sweep


@pytest.fixture
def published(backend: Loopback) -> Loopback:
    """A server that has the sweep's runs."""
    for project in ("own", "speed"):
        backend.store.upsert(("team", project, "run"))
    return backend


def run(*arguments: str) -> int:
    return ended("dashboard", *arguments, "--report")


def blocks(spec: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [block for block in spec["blocks"] if block["type"] == kind]


def stored(backend: Loopback) -> dict[str, Any]:
    (view,) = backend.store.views.values()
    return view


def test_it_says_what_was_compared_section_by_section(compared: Built) -> None:
    document = document_of(compared.folder, compared.manifest)
    assert document.description == "6 rounds; baseline naive: 5.0 ms per example."
    profiles = dict(document.sections)["Profiles"]
    assert "| baseline | trace, [page](https://ui.perfetto.dev) |" in profiles, "a link to the disk is none"
    table = "| toggle | speed |\n|---|---|\n| **TURN ON** |  |\n| amp=bf16 | 1.67x faster |"
    assert document.sections[:3] == (
        ("Noise", "- **!** this machine was noisy"),
        ("Effects: one at a time", table),
        ("Answer", "- **Use it:** `perfsweep run workload=digits toggles.amp=bf16`"),
    )


def told(spec: dict[str, Any]) -> Iterator[str]:
    """What the report is that would be another with other arguments, a chart a line."""
    yield f"{spec['displayName']} of {spec['project']}, {spec['spec']['width']}: {spec['description']}"
    for block in spec["spec"]["blocks"]:
        grid = block.pop("metadata", None)
        yield json.dumps(block)
        for runs in grid.pop("runSets") if grid else ():
            yield f"  {json.dumps({name: runs.get(name) for name in RUNS})}"
        for panel in grid.pop("panelBankSectionConfig")["panels"] if grid else ():
            yield f"  {panel['viewType']} {panel['layout']}"
        if grid:
            yield f"  {json.dumps({name: grid[name] for name in grid if name != 'panelBankConfig'})}"
    yield ""


RUNS = ("name", "project", "filters", "grouping", "sort")


def test_its_charts_show_the_runs_of_this_sweep_and_no_other(compared: Built, tmp_path: Path) -> None:
    """Of the project that the report is in: arms and not their packs, the fastest first, two in a row."""
    spec = specification(report(document_of(compared.folder, compared.manifest), "team", "speed"))
    assert "null" not in json.dumps(spec), "what is not said is left out"
    assert found_in(Path(__file__).with_name("wandb_report.txt"), "\n".join(told(spec)), tmp_path)


def test_the_command_writes_a_file_without_a_server(
    compared: Built, tmp_path: Path, shell: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    assert run(str(compared.folder.path), "--entity", "others", "--project", "own", "--file", str(file)) == 0
    spec = json.loads(file.read_text())
    assert (spec["project"]["entityName"], spec["project"]["name"]) == ("others", "own")
    assert spec["displayName"] == "perfsweep demo"


def test_the_command_saves_it_on_the_server(
    compared: Built, published: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(compared.folder.path), "--project", "own") == 0
    said = capsys.readouterr().out
    assert said.startswith(f"report: {published.url}/team/own/reports/perfsweep-demo--")
    view = stored(published)
    assert (view["entityName"], view["projectName"], view["type"]) == ("team", "own", "runs")
    assert view["description"] == "6 rounds; baseline naive: 5.0 ms per example."
    assert "1.67x faster" in view["spec"]
    grids = blocks(json.loads(view["spec"]), "panel-grid")
    assert {grid["metadata"]["runSets"][0]["project"]["name"] for grid in grids} == {"own"}


def test_before_anything_is_compared_the_command_that_does_is_named(
    sweep: Built, shell: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(sweep.folder.path)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        f"report.md cannot be read (No such file or directory); `perfsweep compare {sweep.folder.path}`"
        in line
    )


def test_a_project_that_nothing_was_published_to_is_said_with_the_command_that_publishes(
    compared: Built, backend: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(compared.folder.path), "--project", "empty") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "W&B has no project team/empty, whose runs the report shows" in line
    assert line.endswith(f"`perfsweep publish {compared.folder.path}` makes it")
