"""Ctrl-C and a killed pack: what was measured stays, and nothing keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from waiting import until

from perfsweep.pipelines.store.records import SweepFolder

SUPPORT = Path(__file__).parents[2] / "support"
DEADLINE_S = 120

SWEEP = [
    *("sweep", "workload=toys.spinner:Spinner", "name=toy", "axes.work=[single]", "tracking=disabled"),
    *("measure.rounds=3", "measure.iterations=8"),
    *("measure.servers=1", "measure.timed_parity=false", "measure.warmup_max=10"),
    *("measure.evidence_iterations=2", "measure.counting_iterations=2"),
]


@contextmanager
def start(folder: Path, timing_trials: int) -> Iterator[subprocess.Popen[str]]:
    """A sweep of the toy, of which so many timing trials may run; the next one waits."""
    gate = folder.with_name(f"{folder.name}-gate")
    gate.mkdir(exist_ok=True)
    (gate / "open").write_text(str(timing_trials))
    paths = os.pathsep.join(map(str, (SUPPORT, SUPPORT.parents[1] / "src")))
    env = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", "PERFSWEEP_TOY_GATE": str(gate)}
    command = [sys.executable, "-m", "perfsweep.pipelines.cli", *SWEEP]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def tickets(folder: Path) -> int:
    """How many timing trials have come to the gate."""
    return sum(path.is_dir() for path in folder.with_name(f"{folder.name}-gate").iterdir())


def processes(folder: Path) -> list[psutil.Process]:
    """Processes that work in the folder."""
    found = psutil.process_iter(["cwd", "cmdline"])
    return [one for one in found if one.info["cwd"] == str(folder) and one.info["cmdline"]]


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_the_same_command_continues_and_a_killed_pack_leaves_no_process(
    tmp_path: Path,
) -> None:
    folder = SweepFolder(tmp_path / "runs" / "toy")
    with start(tmp_path, timing_trials=2) as process:  # one round
        until(lambda: tickets(tmp_path) == 3 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, output
    assert "The same command continues where it stopped" in output
    assert "Traceback" not in output
    until(lambda: not processes(tmp_path))
    kept = {path: path.stat().st_mtime_ns for path in folder.path.glob("trials/*/p000-r000-a0/record.json")}
    assert len(kept) == 2

    with start(tmp_path, timing_trials=4) as process:
        until(lambda: tickets(tmp_path) == 5 or process.poll() is not None)
        started = [one for one in processes(tmp_path) if "execution.pack" in " ".join(one.info["cmdline"])]
        for pack in started:
            pack.kill()
        output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, output
    assert "rounds are there already" in output and "pack p000 broke off" in output
    until(lambda: not processes(tmp_path))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert folder.read_manifest().packs
