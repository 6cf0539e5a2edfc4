"""Following many packs asks a shared file system a bounded number of questions, and hears every event."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.execution import submitted
from perfsweep.pipelines.execution.submitted import HELD_POLLS, LOOKS, POLL_S, Held, Tail, Turns, until_over
from perfsweep.pipelines.store.records import Event, Kind, Outcome, SweepFolder
from perfsweep.slurm.jobs import JobState

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


def test_packs_that_run_take_turns_and_what_one_wrote_last_is_heard(
    folder: SweepFolder, stats: Counter[str]
) -> None:
    turns = Turns([Tail(folder, pack) for pack in PACKS])
    states = dict.fromkeys(PACKS, JobState.PENDING)
    folder.append_event("p001", event("early"))
    assert [one.arm for one in turns.new(states)] == ["early"], "Slurm is asked less often than we look"
    states |= dict.fromkeys(PACKS[:8], JobState.RUNNING)
    for pack in PACKS[:8]:
        folder.append_event(pack, event(pack))
    stats.clear()
    heard = [one.arm for _ in range(4) for one in turns.new(states)]
    assert sorted(heard) == PACKS[:8]
    assert set(stats) == set(PACKS[:8]), "nobody asks about packs that only wait"
    assert LOOKS / POLL_S <= 10 and stats.total() <= 4 * LOOKS, "questions a second, of a thousand packs"
    folder.append_event("p000", event("last"))
    assert [one.arm for one in turns.new(states | {"p000": JobState.ENDED})][:1] == ["last"]
    stats.clear()
    for _ in range(8):
        list(turns.new(states | {"p000": JobState.ENDED}))
    assert "p000" not in stats, "nothing more can come"


class Followed:
    """An executor whose jobs stand, look by look, as a test says; it stays with the last look."""

    def __init__(self, *looks: str, held: tuple[str, ...] = (), counts: tuple[str, ...] = ("",)) -> None:
        self.looks, self.stuck, self.said = [*looks], held, [*counts]
        self.polls = 0

    def poll(self) -> dict[str, JobState]:
        self.polls += 1
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return {f"p{index:03d}": JobState(word) for index, word in enumerate(look.split())}

    def counts(self) -> str:
        return self.said.pop(0) if len(self.said) > 1 else self.said[0]

    def held(self) -> list[str]:
        return [*self.stuck]

    def notes(self) -> dict[str, str]:
        return {"p000": "JobHeldUser"}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitted, "POLL_S", 0.0)
    monkeypatch.setattr(submitted, "COUNTS_S", 0.0)


def test_jobs_are_followed_until_all_are_over(folder: SweepFolder, at_once: None) -> None:
    jobs = Followed("pending pending", "running pending", "ended running", "ended failed")
    tails = [Tail(folder, pack) for pack in PACKS[:2]]
    folder.append_event("p000", event("first"))
    heard: list[str] = []
    assert until_over(jobs, tails, lambda one: heard.append(one.arm)) == {  # type: ignore[arg-type]
        "p000": JobState.ENDED,
        "p001": JobState.FAILED,
    }
    assert (heard, jobs.polls) == (["first"], 4)


def test_only_what_is_noted_from_now_on_is_shown_also_of_a_file_that_was_cut_off(folder: SweepFolder) -> None:
    folder.append_event("p000", event("before"))
    tail = Tail(folder, "p000")
    assert tail.new() == []
    for name in ("first", "then"):
        folder.append_event("p000", event(name))
        assert [one.arm for one in tail.new()] == [name]
    folder.events_file("p000").write_text("")
    assert tail.new() == []
    folder.append_event("p000", event("again"))
    assert [one.arm for one in tail.new()] == ["again"]


def test_how_many_run_is_told_now_and_then_and_only_where_that_has_changed(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, counts, told = [0.0], ("", "2 wait", "2 wait", "1 runs", "1 waits", "1 waits"), list[Any]()
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.append(now.pop() + 3.0))
    monkeypatch.setattr(submitted, "time", clock)
    jobs: Any = Followed(*["pending"] * 9, "ended", counts=counts)
    until_over(jobs, [], lambda one: None, lambda text: told.append((now[0], text)))
    assert told == [(3.0, "2 wait"), (15.0, "1 runs"), (24.0, "1 waits")]


def test_where_all_that_is_left_waits_for_a_person_it_is_left_to_them(
    folder: SweepFolder, at_once: None
) -> None:
    jobs = Followed("pending pending ended", held=("p000", "p001"))
    with pytest.raises(Held) as held:
        until_over(jobs, [], lambda one: None)  # type: ignore[arg-type]
    assert held.value.notes == {"p000": "JobHeldUser", "p001": "held"}
    assert str(held.value) == "p000: JobHeldUser; p001: held"
    assert jobs.polls == HELD_POLLS
    jobs = Followed(*["pending running"] * HELD_POLLS, "pending ended", "ended ended", held=("p000",))
    until_over(jobs, [], lambda one: None)  # type: ignore[arg-type]
    assert jobs.polls == HELD_POLLS + 2, "what runs may free what is held"
