"""What commands say about tracking before measuring, and of what was published after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from loopback import Loopback
from recorded import Built, build

from perfsweep.pipelines.api import prepare_tracking
from perfsweep.pipelines.commands import sessions as module
from perfsweep.pipelines.config.types import SweepCommand, TrackingConfig
from perfsweep.pipelines.publish import dashboard, wandb_report
from perfsweep.pipelines.publish.published import Published, PublishedRun


def said(**tracking: object) -> tuple[list[str], TrackingConfig]:
    """Lines for a person, and the tracking that results."""
    command = SweepCommand(tracking=TrackingConfig(**tracking))  # type: ignore[arg-type]
    return prepare_tracking(command), command.tracking


def test_offline_says_nothing_and_asks_nobody(backend: Loopback) -> None:
    assert said()[0] == []
    assert backend.requests == []


def test_a_good_account_needs_no_word(backend: Loopback) -> None:
    assert said(mode="online")[0] == []


def test_what_the_shell_fills_in_is_kept_for_every_later_publisher(
    backend: Loopback, shell: pytest.MonkeyPatch
) -> None:
    shell.setenv("WANDB_ENTITY", "team")
    lines, tracking = said(mode="online")
    assert (lines, tracking.entity, tracking.base_url) == ([], "team", backend.url)


def test_no_account_is_one_line_and_measuring_goes_on(backend: Loopback, shell: pytest.MonkeyPatch) -> None:
    shell.delenv("WANDB_API_KEY")
    (line,), _ = said(mode="online")
    assert line.startswith(
        f"W&B: no API key for {backend.url}; run `wandb login --host {backend.url}` or set WANDB_API_KEY; "
    )
    assert line.endswith("run folders are written instead, and `perfsweep publish` uploads them later")


def test_each_contradiction_is_one_line(shell: pytest.MonkeyPatch) -> None:
    shell.setenv("WANDB_PROJECT", "other")
    shell.setenv("WANDB_MODE", "online")
    lines, _ = said()
    assert [line.split()[1].partition("=")[0] for line in lines] == ["WANDB_MODE", "WANDB_PROJECT"]


def test_disabled_tracking_has_nothing_to_contradict(shell: pytest.MonkeyPatch) -> None:
    shell.setenv("WANDB_PROJECT", "other")
    assert said(mode="disabled")[0] == []
    assert os.environ["WANDB_PROJECT"] == "other"


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "demo")


@pytest.mark.parametrize(
    ("rows", "offline", "own", "status", "lines"),
    [
        (5, False, {}, 0, ["1 run, 1 of them new or changed, 5 of 5 rows on the server"]),
        (5, True, {"notice": "no [key]"}, 0, ["no [key]", "1 run, 1 of them new or changed, 5 of 5 rows in"]),
        (4, False, {"warning": "1 row is missing"}, 1, ["1 run, 1 of them new or changed, 4 of 5 rows on"]),
    ],
)
def test_what_was_published_is_told_and_what_is_missing_is_status_1(
    rows: int,
    offline: bool,
    own: dict,
    status: int,
    lines: list[str],
    built: Built,
    monkeypatch: pytest.MonkeyPatch,
    shell: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = PublishedRun("a", "the arm", "p000", "id", "here", 5, rows, "written")

    def published(folder: Any, mode: str, say: Any) -> Published:
        assert folder.path == built.folder.path
        return Published((run,), mode=mode, **own)

    monkeypatch.setattr(module.publishing, "publish", published)
    shell.setenv("WANDB_PROJECT", "other")
    assert module.publish(str(built.folder.path), offline) == status
    shown = capsys.readouterr().out
    told = [line.removeprefix("W&B: ") for line in shown.splitlines() if line.startswith("W&B: ")]
    assert told.pop(0).startswith("WANDB_PROJECT=other"), "what the shell says and the sweep does not"
    assert all(one.startswith(line) for one, line in zip(told, lines, strict=True)), told
    assert f"demo in W&B ({'offline' if offline else 'online'})" in shown and "the arm" in shown


def test_of_nothing_there_is_no_table(
    built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.publishing, "publish", lambda folder, mode, say: Published(mode=mode))
    assert module.publish(str(built.folder.path), False) == 0
    assert capsys.readouterr().out == f"W&B: nothing to publish of {built.folder.path} yet\n"


def test_a_dashboard_or_a_report_is_built_of_the_sweep_and_where_it_lies_is_told(
    built: Built, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def builder(what: str) -> Any:
        return lambda folder, manifest, **own: f"{what} of {folder.path.name}: {[*own.values()]}"

    monkeypatch.setattr(dashboard, "build", builder("panels"))
    monkeypatch.setattr(wandb_report, "build", builder("pages"))
    path = str(built.folder.path)
    assert module.dashboard(path, "team", "mine", "here.json", report=False) == 0
    assert module.dashboard(path, None, None, None, report=True) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"dashboard: panels of demo: {['team', 'mine', Path('here.json')]}",
        "report: pages of demo: [None, None, None]",
    ]
