"""What following a thousand packs asks of Slurm and of the file system, counted by call."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from stand_ins import Clock, calls, job, on_stand_ins, program

from slurm.executor import SlurmExecutor
from slurm.jobs import JobState

pytestmark = pytest.mark.slow

PACKS = 1000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls of the file system by their kind."""
    counts: Counter[str] = Counter()

    def count(name: str) -> None:
        real = getattr(Path, name)

        def counted(self: Path, *args: object, **options: object):
            counts[name] += 1
            return real(self, *args, **options)

        monkeypatch.setattr(Path, name, counted)

    for name in ("stat", "open", "read_text", "iterdir"):
        count(name)
    return counts


@pytest.fixture
def followed(stand_in: Path, tmp_path: Path) -> tuple[SlurmExecutor, Clock, Path]:
    """A thousand packs in five arrays, and the file that squeue prints."""
    program(stand_in, "sbatch", "echo Submitted batch job $$")
    ex, clock = on_stand_ins(tmp_path, max_array=200)
    ex.submit([job(f"p{number:03d}") for number in range(PACKS)])
    rows = stand_in / "rows"
    program(stand_in, "squeue", f"cat {rows}")
    clock.now += 60
    return ex, clock, rows


def say(ex: SlurmExecutor, rows: Path, state: str, reason: str = "None") -> None:
    lines = [
        f"{one.array}|{index}|{one.array}|{state}|{reason}|n1|perfsweep:{token}|demo.{token}\n"
        for token, one in ex.journal.submissions.items()
        for index in range(len(one.names))
    ]
    rows.write_text("".join(lines))


def write(ex: SlurmExecutor, what: str) -> None:
    for token, one in ex.journal.submissions.items():
        folder = ex._submitter.folder / token
        folder.mkdir(exist_ok=True)
        for index in range(len(one.names)):
            (folder / f"{index}.beat").touch()
            (folder / f"{index}.{what}-0.json").write_text('{"status": 0, "signals": []}')


def test_a_look_at_running_packs_lists_a_folder_for_each_array_and_reads_nothing(
    followed: tuple[SlurmExecutor, Clock, Path], asked: Counter[str]
) -> None:
    ex, clock, rows = followed
    say(ex, rows, "RUNNING")
    write(ex, "start")
    for _ in range(2):
        asked.clear()
        clock.now += 60
        assert set(ex.poll().values()) == {JobState.RUNNING}
        assert asked == {"iterdir": 5, "open": 1}, "the journal, which other commands write to as well"


def test_what_a_pack_wrote_at_its_end_is_read_once(
    followed: tuple[SlurmExecutor, Clock, Path], asked: Counter[str]
) -> None:
    ex, clock, rows = followed
    say(ex, rows, "RUNNING")
    write(ex, "end")
    asked.clear()
    clock.now += 60
    assert set(ex.poll().values()) == {JobState.ENDED}
    assert asked["read_text"] == PACKS
    assert asked["stat"] == 0
    clock.now += 60
    ex.poll()
    assert asked["read_text"] == PACKS


def test_a_silent_slurm_costs_a_look_at_each_running_packs_sign_of_life_and_no_more(
    followed: tuple[SlurmExecutor, Clock, Path], asked: Counter[str], stand_in: Path
) -> None:
    ex, _, _ = followed
    write(ex, "start")
    program(stand_in, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    asked.clear()
    ex.poll()
    assert asked["stat"] <= PACKS + 10


def test_once_nothing_changes_slurm_is_asked_twice_a_minute_whatever_packs_wait_for(
    followed: tuple[SlurmExecutor, Clock, Path], stand_in: Path
) -> None:
    ex, clock, rows = followed
    ex._site.poll_min_s = 5.0
    counts = []
    for minute in range(10):
        say(ex, rows, "PENDING", ("Priority", "Resources")[minute % 2])
        before = {name: calls(stand_in, name) for name in ("squeue", "sacct", "scontrol", "sbatch")}
        for _ in range(30):
            clock.now += 2.0
            ex.poll()
        counts.append(sum(calls(stand_in, name) - was for name, was in before.items()))
    assert all(count <= 2 for count in counts[4:]), counts
    say(ex, rows, "RUNNING")
    clock.now += 60
    ex.poll()
    before = calls(stand_in, "squeue")
    clock.now += 6
    ex.poll()
    assert calls(stand_in, "squeue") == before + 1, "a change makes the next question urgent"
