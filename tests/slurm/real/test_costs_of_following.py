"""What following hundreds of packs asks of Slurm and of the file system, counted by call."""

from __future__ import annotations

import resource
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import command as console
from budget import of_its_machine
from measured import spec_of
from measured import write as write_trial
from stand_ins import Clock, calls, executor_on, job, on_stand_ins, program

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Kind, SweepFolder
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import JobState
from perfsweep.slurm.site import SiteProfile
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

PACKS = 400
STATUS_S = 3.0
"""Processor time of the budget's machine that a look at so many packs, or their end, may take, imports and
clients included."""


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
    """Packs in five arrays, and the file that squeue prints."""
    program(stand_in, "sbatch", "echo Submitted batch job $$")
    ex, clock = on_stand_ins(tmp_path, max_array=PACKS // 5)
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


@pytest.fixture
def submitted(
    command: Callable[..., SweepCommand], stand_in: Path, tmp_path: Path
) -> tuple[SlurmExecutor, SweepFolder]:
    """A sweep of packs that run, the first round of each measured."""
    ladder = DesignConfig("ladder", levels={"size": list(range(2, PACKS + 2))})
    asked = command(ladder, workload="toys.ladder:Ladder")
    asked.cluster.arms_per_pack = 2
    manifest = plan.make_plan(asked, Device())
    folder = SweepFolder(Path(asked.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    folder.code_dir.mkdir()
    folder.config_file.write_text("configuration:\n  cluster:\n    executor: slurm\n")
    for pack in manifest.packs:
        for arm in pack.orders[0]:
            write_trial(folder, spec_of(manifest, arm, pack.id, 0, Kind.TIMING), region_ns=10**9)
    program(stand_in, "sbatch", "echo Submitted batch job $$")
    ex = executor_on(SiteProfile(max_array=PACKS // 5), folder.path)
    ex.submit([job(pack.id) for pack in manifest.packs])
    say(ex, stand_in / "rows", "RUNNING")
    program(stand_in, "squeue", f"cat {stand_in / 'rows'}")
    write(ex, "start")
    return ex, folder


def spent_on(*arguments: str) -> tuple[float, str]:
    """Processor time of a command and of all that it starts, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(console(*arguments), capture_output=True, text=True, timeout=300, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def test_status_and_cancel_of_four_hundred_packs_take_three_seconds_of_a_processor_each(
    submitted: tuple[SlurmExecutor, SweepFolder], stand_in: Path
) -> None:
    ex, folder = submitted
    assert len(ex.journal.open_names()) == PACKS
    looking, shown = spent_on("status", str(folder.path))
    assert shown.count("1 of 2") == PACKS and shown.count("running") >= PACKS
    ending, said = spent_on("cancel", str(folder.path))
    assert f"cancelled {PACKS} jobs" in said and calls(stand_in, "scancel") == 1
    looking, ending = of_its_machine(looking), of_its_machine(ending)
    print(f"\nstatus {looking:.1f} s, cancel {ending:.1f} s of the budget's processor")
    assert looking < STATUS_S and ending < STATUS_S
