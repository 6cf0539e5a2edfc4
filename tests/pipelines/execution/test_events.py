"""Following many packs asks a shared file system a bounded number of questions, and hears every event."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from pipelines.execution.events import LOOKS, POLL_S, Tail, Turns
from pipelines.store.records import Event, Kind, Outcome, SweepFolder
from slurm.jobs import JobState

PACKS = [f"p{number:03d}" for number in range(1000)]


def event(arm: str) -> Event:
    return Event(time=time.time(), arm=arm, kind=Kind.TIMING, round=0, outcome=Outcome.OK, seconds=1.0)


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    return SweepFolder(tmp_path)


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the size of each file was asked for."""
    asked: Counter[str] = Counter()
    real = Path.stat

    def stat(self: Path, **options: bool):
        asked[self.parent.name] += 1
        return real(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    return asked


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
def test_a_thousand_packs_cost_ten_stat_calls_a_second(
    folder: SweepFolder, stats: Counter[str], state: JobState
) -> None:
    turns = Turns([Tail(folder, pack) for pack in PACKS])
    stats.clear()
    for _ in range(round(1 / POLL_S)):
        assert not list(turns.new(dict.fromkeys(PACKS, state)))
    assert stats.total() == LOOKS / POLL_S <= 10


def test_packs_that_run_take_turns_and_what_one_wrote_last_is_heard(
    folder: SweepFolder, stats: Counter[str]
) -> None:
    turns = Turns([Tail(folder, pack) for pack in PACKS])
    stats.clear()
    states = dict.fromkeys(PACKS, JobState.PENDING) | dict.fromkeys(PACKS[:8], JobState.RUNNING)
    for pack in PACKS[:8]:
        folder.append_event(pack, event(pack))
    heard = [one.arm for _ in range(4) for one in turns.new(states)]
    assert sorted(heard) == PACKS[:8]
    assert set(stats) == set(PACKS[:8]), "nobody asks about packs that only wait"
    folder.append_event("p000", event("last"))
    assert [one.arm for one in turns.new(states | {"p000": JobState.ENDED})][:1] == ["last"]
    stats.clear()
    for _ in range(8):
        list(turns.new(states | {"p000": JobState.ENDED}))
    assert "p000" not in stats, "nothing more can come"


def test_what_was_heard_is_not_read_again_however_much_it_is(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail, read = Tail(folder, "p000"), []
    real = SweepFolder.read_events

    def counted(self: SweepFolder, pack: str, start: int = 0) -> tuple[list[Event], int]:
        events, end = real(self, pack, start)
        read.append(end - start)
        return events, end

    monkeypatch.setattr(SweepFolder, "read_events", counted)
    for number in range(50):
        folder.append_event("p000", event(str(number)))
        assert [one.arm for one in tail.new()] == [str(number)]
    assert sum(read) == folder.events_file("p000").stat().st_size


def test_half_a_line_is_heard_when_it_is_whole(folder: SweepFolder) -> None:
    tail, file = Tail(folder, "p000"), folder.events_file("p000")
    folder.append_event("p000", event("first"))
    line = file.read_bytes()
    with file.open("ab") as out:
        out.write(line[:30])
    assert [one.arm for one in tail.new()] == ["first"]
    with file.open("ab") as out:
        out.write(line[30:])
    assert [one.arm for one in tail.new()] == ["first"]


def test_a_file_that_was_cut_off_is_followed_from_where_it_ends(folder: SweepFolder) -> None:
    tail, file = Tail(folder, "p000"), folder.events_file("p000")
    for arm in ("first", "second"):
        folder.append_event("p000", event(arm))
    assert len(tail.new()) == 2
    file.write_bytes(file.read_bytes()[:40])
    assert tail.new() == []
    folder.append_event("p000", event("third"))
    assert [one.arm for one in tail.new()] == ["third"]
