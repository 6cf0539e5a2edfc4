"""Publishing one run: by which process, when another does, what fails, and what killed ones leave."""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded import FAST, IDENTITY, NAIVE, Built, build

from perfsweep.pipelines.publish import worker
from perfsweep.pipelines.publish.content import RunContent
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.publishing import READY, WAITING
from perfsweep.pipelines.publish.runs import SweepRuns
from perfsweep.pipelines.publish.worker import BUSY, Publisher, run_lock

KEY = ("p000", FAST.id)
RUN_ID = f"{IDENTITY}-{FAST.id}-p000"


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "sweep")


@pytest.fixture
def runs(built: Built) -> SweepRuns:
    return SweepRuns(built.folder, built.manifest)


class Sent:
    """An upload that notes what it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fresh: list[bool] = []
        monkeypatch.setattr(worker, "Server", lambda: type("Server", (), {})())
        monkeypatch.setattr(worker, "upload", self)

    def __call__(self, folder: Any, content: Any, server: Any, staging: Any, *, fresh: bool) -> PublishedRun:
        self.fresh.append(fresh)
        return content.delivered("there", content.rows, "uploaded")


@pytest.mark.parametrize("late_s", [0.0, 86_400.0], ids=["a clock as ours", "a clock a day late"])
def test_what_another_has_sent_since_the_server_was_asked_is_looked_up_again(
    built: Built, runs: SweepRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, late_s: float
) -> None:
    sent, now = Sent(monkeypatch), time.time()
    before, ours, theirs = (Publisher(runs, tmp_path, "http://there") for _ in range(3))
    for one in (before, ours, ours):
        one.publish(KEY)
    monkeypatch.setattr(time, "time", lambda: now - late_s)
    theirs.publish(KEY)
    assert sent.fresh == [False] * 4, "nothing was sent since it was asked, but by the same publisher"
    ours.publish(KEY)
    assert sent.fresh[4]


def test_one_that_another_publisher_has_is_waited_for_and_then_left_to_it(
    built: Built, runs: SweepRuns, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sent, waits = Sent(monkeypatch), []
    monkeypatch.setattr(worker, "WAIT_S", 0.15)
    ours = Publisher(runs, tmp_path, "http://there")
    ours.waits = lambda: waits.append(True)
    with run_lock(built.folder, RUN_ID) as first, run_lock(built.folder, RUN_ID) as second:
        assert (first, second) == (True, False)
        done = ours.publish(KEY)
    assert (done and done.note, waits, sent.fresh) == (BUSY, [True], [])
    assert ours.publish(KEY) != done and waits == [True], "nobody is waited for now"


class Wandb:
    """W&B, as far as it has to be taken down."""

    def teardown(self) -> None: ...


@pytest.fixture
def served(
    built: Built, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[list[Any], str]]:
    """Serves keys as the process does: its answers, and what else was printed in it."""
    monkeypatch.setitem(sys.modules, "wandb", Wandb())  # type: ignore[arg-type]
    monkeypatch.setenv("WANDB_BASE_URL", "https://own.example")  # the default is asked of the real package
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(worker, "published_before", lambda *words: None)

    def written(folder: Any, content: RunContent, staging: Path) -> PublishedRun:
        os.write(1, f"W&B writes to {tempfile.gettempdir()}\n".encode())
        assert tempfile.gettempdir() == str(staging)
        return content.delivered(None, 0, "written")

    def serve(*keys: tuple[str, str], how: tuple[str, ...] = ("offline",)) -> tuple[list[Any], str]:
        monkeypatch.setattr(worker, "write_offline", written)
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{json.dumps(key)}\n" for key in keys)))
        assert worker.main([str(built.folder.path), *how]) == 0
        tempfile.tempdir = None  # what it had lay aside, and is gone
        said = capfd.readouterr()
        return [json.loads(line) for line in said.out.splitlines()], said.err

    return serve


def test_each_run_has_one_answer_with_its_own_problems_and_nothing_else_that_is_printed(
    served: Callable[..., tuple[list[Any], str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = SweepRuns.content

    def content(self: SweepRuns, key: tuple[str, str]) -> RunContent | None:
        self.problems.append(f"a problem of {key[1]}")
        return made(self, key) if key[1] == FAST.id else None

    monkeypatch.setattr(SweepRuns, "content", content)
    (ready, first, second), printed = served(KEY, ("p000", NAIVE.id))
    assert ready == {READY: True}
    assert (first["run"]["run_id"], first["run"]["note"]) == (RUN_ID, "written")
    assert first["problems"] == [f"a problem of {FAST.id}"]
    assert second == {"run": None, "problems": [f"a problem of {NAIVE.id}"]}
    assert "W&B writes to" in printed


def test_who_asked_hears_that_another_publisher_is_waited_for(
    served: Callable[..., tuple[list[Any], str]], built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WAIT_S", 0.0)
    with run_lock(built.folder, RUN_ID):
        (_, waiting, answer), _ = served(KEY)
    assert (waiting, answer["run"]["note"]) == ({WAITING: True}, BUSY)


def test_runs_that_are_sent_go_to_the_server_that_is_named(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    def publisher(runs: SweepRuns, server: str | None, alone: bool) -> Any:
        asked.append((server, alone))
        return nullcontext(SimpleNamespace())

    monkeypatch.setattr(worker, "publisher", publisher)
    monkeypatch.setattr(worker, "answers", io.StringIO)
    for where in (["offline"], ["online", "http://there"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        assert worker.main([str(built.folder.path), *where]) == 0
    assert asked == [(None, True), ("http://there", True)]
