"""How many processes publish, where to, and what is handed to them; without any process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.pool import Delivered
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.publish.publishing import Publication
from perfsweep.pipelines.publish.server import Account

GOOD = Account(entity="team")


class Crew:
    """What a crew is told, and what it brings back."""

    made: list[tuple[Any, ...]] = []
    delivered = Delivered()

    def __init__(self, *words: Any) -> None:
        self.words, self.handed = words, []
        self.made.append((words[1:], self.handed))

    def hand_over(self, keys: Any) -> None:
        self.handed += keys

    def finish(self) -> Delivered:
        return self.delivered


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> type[Crew]:
    monkeypatch.setattr(Crew, "made", [])
    monkeypatch.setattr(Crew, "delivered", Delivered())
    monkeypatch.setattr(publishing, "Crew", Crew)
    monkeypatch.setattr(publishing, "probe", lambda tracking, shell: GOOD)
    return Crew


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build(tmp_path / "sweep", patience_s=7.0, base_url="http://there")


KEYS = [("p000", NAIVE.id), ("p000", FAST.id)]


def run(key: tuple[str, str], **changes: Any) -> PublishedRun:
    done = PublishedRun(key[1], key[1], key[0], "id", "there", 5, 5, "written")
    return dataclasses.replace(done, **changes)


def test_runs_are_handed_over_at_once_with_the_sweeps_patience_or_anothers(
    built: Built, crew: type[Crew]
) -> None:
    Publication(built.folder)
    Publication(built.folder, mode="online", patience_s=3.0)
    (offline, first), (online, second) = crew.made
    assert offline == (None, 1, 7.0)
    assert online == ("http://there", 2, 3.0)
    assert first == second == KEYS


def test_what_is_missing_is_told_with_its_reason_and_problems_are_told_once(
    built: Built, crew: type[Crew]
) -> None:
    crew.delivered = Delivered({KEYS[0]: run(KEYS[0])}, {KEYS[1]: "given up"}, ["damaged", "damaged"])
    done = Publication(built.folder, mode="online").finish()
    missing = done.runs[1]
    assert (missing.arm, missing.where, missing.note, missing.rows_found) == (FAST.id, None, "given up", 0)
    assert missing.rows_produced > 0 and done.mode == "online"
    assert done.warning and done.warning.endswith("publish again: damaged (and 1 more)")


def test_an_account_that_cannot_be_used_is_said_with_what_was_done_instead(
    built: Built, crew: type[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "probe", lambda tracking, shell: Account(problem="no key"))
    done = Publication(built.folder, mode="online").finish()
    assert (done.mode, crew.made[0][0][0]) == ("offline", None)
    assert done.notice and done.notice.startswith("no key; run folders are written instead")


@pytest.mark.parametrize(
    ("mode", "warning"),
    [
        ("disabled", None),
        ("sometimes", "tracking.mode=sometimes is unknown, nothing was published; choose from: offline"),
    ],
)
def test_nothing_is_handed_over_where_nothing_can_be(
    built: Built, crew: type[Crew], mode: str, warning: str | None
) -> None:
    done = Publication(built.folder, mode=mode).finish()
    assert (done.runs, done.mode, crew.made) == ((), mode, [])
    assert (done.warning or "").startswith(warning or "") and bool(done.warning) == bool(warning)
