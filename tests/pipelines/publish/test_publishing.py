"""Where runs are published to, by which processes, at the end and between rounds, and what failures say."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import FAST, NAIVE, Built, build

from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import Published, PublishedRun
from perfsweep.pipelines.publish.publishing import (
    FIRST_COST_S,
    GIVEN_UP,
    PATIENCE_S,
    Delivered,
    Feeder,
    forecast,
    publish,
)
from perfsweep.pipelines.publish.server import Account, status_sentence
from perfsweep.pipelines.store.options import TrackingConfig
from perfsweep.pipelines.store.records import SweepFolder

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


def test_run_folders_that_are_complete_are_handed_to_nobody(copied: Built, crew: type[Crew]) -> None:
    done = publish(copied.folder)
    ((_, handed),) = crew.made
    arms = {one.arm for one in done.runs}
    assert handed == [] and arms >= {NAIVE.id, FAST.id} and done.warning is None


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


WORKER = """#!/bin/sh
echo "$$ $@" >> {folder}/started
echo '{{"ready": true}}'
while read key; do
    case $key in
    *good*) cat {folder}/run.json;;
    *strange*) echo '{{"run": null, "problems": ["damaged"]}}';;
    *waits*) echo '{{"waiting": true}}'; sleep {pause}; cat {folder}/run.json;;
    *hangs*) exec sleep 600;;
    *half*) printf '{{"run"'; exit 1;;
    *dies*) echo "Traceback" >&2; echo "no room" >&2; exit 1;;
    *killed*) kill -9 $$;;
    esac
done
"""
RAN = PublishedRun("a", "baseline", "p000", "id", "there", 5, 5, "written")


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., publishing.Crew]:
    """Makes crews whose processes are the script above."""
    (tmp_path / "run.json").write_text(json.dumps({"run": vars(RAN), "problems": []}) + "\n")
    program = tmp_path / "python"
    program.write_text(WORKER.format(folder=tmp_path, pause=0.05))
    program.chmod(0o755)
    monkeypatch.setattr(publishing.sys, "executable", str(program))
    folder = SweepFolder(tmp_path / "sweep")
    folder.wandb_dir.mkdir(parents=True)
    return lambda size=1, patience_s=60.0, server=None: publishing.Crew(folder, server, size, patience_s)


def delivered(made: publishing.Crew, *arms: str) -> Delivered:
    return made.deliver([("p000", arm) for arm in arms])


def started(tmp_path: Path) -> list[str]:
    file = tmp_path / "started"
    return file.read_text().splitlines() if file.exists() else []


def alive(tmp_path: Path) -> list[int]:
    return [pid for line in started(tmp_path) if Path(f"/proc/{(pid := int(line.split()[0]))}").exists()]


def test_one_process_publishes_run_after_run(pool: Callable[..., publishing.Crew], tmp_path: Path) -> None:
    done = delivered(pool(), "good", "strange", "good2")
    assert done == Delivered({("p000", "good"): RAN, ("p000", "good2"): RAN}, {}, ["damaged"])
    assert alive(tmp_path) == []
    delivered(pool(server="http://there"), "good")
    delivered(pool(3))
    own = f"-m perfsweep.pipelines.publish.worker {tmp_path / 'sweep'}"
    said = [words.partition(" ")[2] for words in started(tmp_path)]
    assert said == [f"{own} offline", f"{own} online http://there"], "and none without runs"


@pytest.mark.parametrize(
    ("arm", "why"),
    [
        ("dies", "the publishing process ended: no room"),
        ("half", "the publishing process ended: it was killed"),
        ("hangs", "not done within 0.2 s and given up; is the server overloaded?"),
    ],
)
def test_a_process_that_is_lost_names_why_and_what_came_after_it_is_given_up(
    pool: Callable[..., publishing.Crew], tmp_path: Path, arm: str, why: str
) -> None:
    done = delivered(pool(patience_s=0.2 if arm == "hangs" else 60.0), arm, "later")
    assert done.failures == {("p000", arm): why, ("p000", "later"): GIVEN_UP}
    assert (done.runs, alive(tmp_path)) == ({}, [])


def test_what_a_server_refused_is_told_rather_than_how_the_process_ended(
    pool: Callable[..., publishing.Crew], tmp_path: Path
) -> None:
    log = tmp_path / "sweep/wandb/.publishing-x/run/debug-internal.log"
    log.parent.mkdir(parents=True)
    log.write_text('{"level":"ERROR","status":403}\n')
    done = delivered(pool(), "dies")
    assert done.failures == {("p000", "dies"): f"W&B {status_sentence(403)}"}


def test_processes_import_what_runs_here_and_nothing_of_the_folder_they_start_in(
    pool: Callable[..., publishing.Crew], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = f"env > {tmp_path}/env\n"
    program = tmp_path / "python"
    program.write_text(program.read_text().replace("echo '{\"ready", f"{seen}echo '{{\"ready"))
    own = str(Path(publishing.__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/user", own]))
    delivered(pool(), "good")
    env = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    assert env["PYTHONPATH"].split(os.pathsep) == [own, "/user"]
    assert (env["PYTHONSAFEPATH"], env["OMP_NUM_THREADS"]) == ("1", "1")
