"""Ctrl-C, a killed pack and a second command: what was measured stays, and nothing keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from typed import ended
from waiting import until

from perfsweep.pipelines.store import locks
from perfsweep.pipelines.store.records import SweepFolder

SUPPORT = Path(__file__).parents[2] / "support"
DEADLINE_S = 120

SWEEP = [
    *("sweep", "workload=toys.spinner:Spinner", "name=toy", "axes.work=[single]", "tracking=disabled"),
    *("measure.rounds=3", "measure.iterations=8"),
    *("measure.servers=1", "measure.timed_parity=false", "measure.warmup_max=10"),
    *("measure.evidence_iterations=2", "measure.counting_iterations=2"),
]


def start(folder: Path, timing_trials: int = 1000) -> subprocess.Popen[str]:
    """A sweep of the toy, of which so many timing trials may run; the next one waits."""
    gate = folder.with_name(f"{folder.name}-gate")
    gate.mkdir(exist_ok=True)
    (gate / "open").write_text(str(timing_trials))
    paths = os.pathsep.join(map(str, (SUPPORT, SUPPORT.parents[1] / "src")))
    env = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", "PERFSWEEP_TOY_GATE": str(gate)}
    return subprocess.Popen(
        [sys.executable, "-m", "perfsweep.pipelines.cli", *SWEEP],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def tickets(folder: Path) -> int:
    """How many timing trials have come to the gate."""
    return sum(path.is_dir() for path in folder.with_name(f"{folder.name}-gate").iterdir())


def processes(folder: Path) -> list[psutil.Process]:
    """Processes that work in the folder."""
    found = psutil.process_iter(["cwd", "cmdline"])
    return [one for one in found if one.info["cwd"] == str(folder) and one.info["cmdline"]]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A sweep of the toy in its second round, the first trial of which waits."""
    process = start(tmp_path, timing_trials=2)
    until(lambda: tickets(tmp_path) == 3 or process.poll() is not None)
    yield tmp_path, process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_the_same_command_finishes_the_rest(
    running: tuple[Path, subprocess.Popen[str]],
) -> None:
    folder, process = running
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, output
    assert "The same command continues where it stopped" in output
    assert "Traceback" not in output
    until(lambda: not processes(folder))
    kept = {
        path: path.stat().st_mtime_ns for path in folder.glob("runs/toy/trials/*/p000-r000-a0/record.json")
    }
    assert len(kept) == 2

    again = start(folder)
    output, _ = again.communicate(timeout=DEADLINE_S)
    assert again.returncode == 0, output
    assert "rounds are there already" in output, output
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert "work=single" in output


@pytest.mark.slow
def test_a_killed_pack_leaves_no_process_and_the_sweep_says_so(
    running: tuple[Path, subprocess.Popen[str]],
) -> None:
    folder, process = running
    (pack,) = [
        one for one in processes(folder) if "perfsweep.pipelines.execution.pack" in one.info["cmdline"]
    ]
    pack.kill()
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, output
    assert "pack p000 broke off" in output
    until(lambda: not processes(folder))
    assert SweepFolder(folder / "runs" / "toy").read_manifest().packs


def test_a_second_command_on_the_same_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with locks.locked(SweepFolder(tmp_path / "runs" / "toy")):
        assert ended(*SWEEP) == 2
    assert "is being measured by another command" in capsys.readouterr().err
    assert not list(tmp_path.rglob("record.json"))
