"""Where runs are published to, at the end and between rounds, and what is said where that fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import Published, PublishedRun
from perfsweep.pipelines.publish.publishing import (
    FIRST_COST_S,
    PATIENCE_S,
    Delivered,
    Feeder,
    forecast,
    publish,
)
from perfsweep.pipelines.publish.server import Account
from perfsweep.pipelines.store.options import TrackingConfig

GOOD = Account(entity="team")


class Crew:
    """What a crew is told, and what it brings back."""

    made: list[tuple[Any, ...]] = []
    delivered = Delivered()

    def __init__(self, *words: Any) -> None:
        self.words, self.handed = words, []
        self.made.append((words[1:], self.handed))

    def deliver(self, keys: Any) -> Delivered:
        self.handed += keys
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
    heard: list[str] = []
    publish(built.folder, say=heard.append)
    assert heard == [], "a folder here sets no limit"
    publish(built.folder, mode="online", patience_s=3.0, say=heard.append)
    assert heard == [forecast(2, 2)]
    (offline, first), (online, second) = crew.made
    assert offline == (None, 1, 7.0)
    assert online == ("http://there", 2, 3.0)
    assert first == second == KEYS


@pytest.mark.parametrize(
    ("runs", "online", "cores", "processes"),
    [
        *((0, True, 8, 1), (9, True, 8, 6), (7, False, 8, 1), (16, False, 8, 3), (99, False, 2, 2)),
        (99, False, None, 1),
    ],
)
def test_uploads_have_company_and_folders_cores(
    runs: int, online: bool, cores: int | None, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing.os, "cpu_count", lambda: cores)
    assert publishing._processes(TrackingConfig(uploads=6), runs, online=online) == processes


def test_a_forecast_counts_requests_of_processes_and_runs_and_the_minutes_that_they_take() -> None:
    few = "about 67 requests at most, 10 for each of 2 runs: 1 minute at 200 a minute"
    many = "about 2112 requests at most, 10 for each of 200 runs: 11 minutes at 200 a minute"
    assert (forecast(2, 3), forecast(200, 16)) == (few, many)


def test_what_is_missing_is_told_with_its_reason_and_problems_are_told_once(
    built: Built, crew: type[Crew]
) -> None:
    crew.delivered = Delivered({KEYS[0]: run(KEYS[0])}, {KEYS[1]: "given up"}, ["damaged", "damaged"])
    done = publish(built.folder, mode="online")
    missing = done.runs[1]
    assert (missing.arm, missing.where, missing.note, missing.rows_found) == (FAST.id, None, "given up", 0)
    assert missing.rows_produced > 0 and done.mode == "online"
    assert done.warning and done.warning.endswith("publish again: damaged (and 1 more)")


def test_an_account_that_cannot_be_used_is_said_with_what_was_done_instead(
    built: Built, crew: type[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "probe", lambda tracking, shell: Account(problem="no key"))
    done = publish(built.folder, mode="online")
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
    done = publish(built.folder, mode=mode)
    assert (done.runs, done.mode, crew.made) == ((), mode, [])
    assert (done.warning or "").startswith(warning or "") and bool(done.warning) == bool(warning)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Publisher:
    """Takes a known time and answers as it is told."""

    def __init__(
        self, clock: Clock, cost_s: float, answer: Callable[[], Published] = lambda: Published(mode="online")
    ) -> None:
        self.clock, self.cost_s, self.answer = clock, cost_s, answer
        self.asked: list[tuple[Any, ...]] = []

    def __call__(self, *given: Any) -> Published:
        self.asked.append(given)
        self.clock.now += self.cost_s
        return self.answer()


def fed(built: Built, publisher: Publisher, rounds: int, round_s: float) -> None:
    feeder = Feeder(built.folder, built.manifest, "p000", publisher, publisher.clock)
    for _ in range(rounds):
        publisher.clock.now += round_s
        feeder.between_rounds()


@pytest.fixture
def sweep(tmp_path: Path) -> Built:
    """A sweep that goes to a server."""
    return build(tmp_path / "demo", mode="online")


@pytest.mark.parametrize("cost_s", [0.5, 30.0])
@pytest.mark.parametrize("round_s", [0.3, 500.0])
def test_feeding_takes_no_more_than_its_share(sweep: Built, cost_s: float, round_s: float) -> None:
    clock = Clock()
    publisher = Publisher(clock, cost_s)
    fed(sweep, publisher, 2000, round_s)
    assert len(publisher.asked) > 1 or clock.now < 1000.0 + 200 * cost_s
    spent = len(publisher.asked) * cost_s
    # The first feeding is bought with the expected cost; each later one with what the one before it took.
    assert spent - max(0.0, cost_s - FIRST_COST_S) <= 0.02 * (clock.now - 1000.0)


@pytest.mark.parametrize(("mode", "times"), [("online", 1), ("offline", 0), ("disabled", 0)])
def test_the_packs_own_rounds_are_sent_with_little_patience_and_run_folders_wait(
    tmp_path: Path, mode: str, times: int
) -> None:
    publisher, sweep = Publisher(Clock(), 1.0), build(tmp_path / "demo", mode=mode)
    fed(sweep, publisher, 1, 1000.0)
    assert publisher.asked == [(sweep.folder, ["p000"], "online", PATIENCE_S)] * times


def _raises() -> Published:
    raise ConnectionResetError("the background process is gone")


@pytest.mark.parametrize("answer", [lambda: Published(warning="2 of 2 runs lack 50 rows"), _raises])
def test_after_a_failure_it_warns_once_and_rests(
    sweep: Built, capsys: pytest.CaptureFixture[str], answer: Callable[[], Published]
) -> None:
    publisher = Publisher(Clock(), 1.0, answer)
    fed(sweep, publisher, 5, 1000.0)
    assert len(publisher.asked) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("W&B: ")


def test_a_server_that_cannot_be_reached_is_asked_once(
    sweep: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = Published(mode="offline", notice="gone; run folders are written instead")
    publisher = Publisher(Clock(), 1.0, lambda: gone)
    fed(sweep, publisher, 3, 1000.0)
    assert [mode for _, _, mode, _ in publisher.asked] == ["online"]
    assert capsys.readouterr().out == "W&B: gone; run folders are written instead\n"
