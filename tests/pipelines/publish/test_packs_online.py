"""Real packs that publish online while they run, and what may happen to them meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import Loopback
from loopback.server import KEY
from measured import prepared
from published_rows import concluded
from waiting import until

from perfsweep.pipelines.config.types import DesignConfig, TrackingConfig
from perfsweep.pipelines.publish.publishing import publish
from perfsweep.pipelines.store.records import SweepFolder, read_record

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
DEADLINE_S = 200.0
ROUNDS = 8


class Step:
    """A pack as a cluster starts it: a step of its own, in its own session."""

    def __init__(self, folder: SweepFolder) -> None:
        self.folder = folder
        self.log = folder.path / "pack.log"
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            command = [
                sys.executable,
                "-m",
                "perfsweep.pipelines.execution.pack",
                str(self.folder.path),
                "p000",
            ]
            env = {**os.environ, "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1"}
            return subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)

    def again(self) -> None:
        """Requeue."""
        self.process = self._started()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def everybody(self) -> list[int]:
        """Processes of the step: the pack and all its descendants, whatever their sessions."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            try:
                stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
            except OSError:
                continue
            if stat:
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def signal_everybody(self, number: signal.Signals) -> None:
        for pid in self.everybody():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


@pytest.fixture
def folder(command, backend: Loopback) -> SweepFolder:
    """A planned sweep of the toy that feeds the backend as often as it may."""
    tracking = TrackingConfig(mode="online", entity="team", share=1.0, patience_s=10.0, uploads=1)
    measure = {"rounds": ROUNDS, "iterations": 30}
    toy = command(DesignConfig("one_at_a_time", toggles=["work"]), tracking=tracking, measure=measure)
    return prepared(toy)[0]


def fed(backend: Loopback) -> bool:
    """Whether rows have been fed while the pack runs."""
    return backend.rows() > 0


def test_a_pack_feeds_its_rounds_while_it_runs_and_writes_the_key_nowhere(
    folder: SweepFolder, backend: Loopback
) -> None:
    step = Step(folder)
    until(lambda: fed(backend))
    assert step.process.poll() is None
    assert step.wait() == 0
    trials = [read_record(path.parent) for path in folder.path.glob("trials/*/*/record.json")]
    busy = [(trial.started, trial.ended) for trial in trials if trial]
    assert len(busy) >= 2 * ROUNDS
    assert not [at for at in backend.times for start, end in busy if start <= at <= end], (
        "it published while a trial ran"
    )
    rows = concluded(folder, backend)
    assert rows.complete, rows
    assert rows.before > 0
    assert publish(folder, mode="offline").complete
    assert places_of_the_key(folder, backend) == []


def places_of_the_key(folder: SweepFolder, backend: Loopback) -> list[object]:
    """Files and lines on the server that hold the API key, of many."""
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 50
    with backend.lock:
        lines = [
            line for run in backend.store.runs.values() for line in (run.config, run.summary, *run.history)
        ]
    assert lines
    return [
        *(path for path in files if KEY.encode() in path.read_bytes()),
        *(line for line in lines if KEY in line),
    ]


def all_measured(step: Step) -> None:
    assert step.wait() == 0, step.log.read_text()
    assert measured(step.folder) >= 2 * ROUNDS


def measured(folder: SweepFolder) -> int:
    """Timing trials that have a record."""
    return len(list(folder.path.glob("trials/*/p000-r*/record.json")))


def test_a_pack_that_is_published_from_elsewhere_ended_requeued_and_killed_loses_and_doubles_no_row(
    folder: SweepFolder, backend: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    (gate / "open").write_text("8")
    monkeypatch.setenv("PERFSWEEP_TOY_GATE", str(gate))
    step = Step(folder)
    until(lambda: fed(backend) and measured(folder) == 8, "four rounds; the fifth waits")
    assert publish(folder).complete
    assert step.process.poll() is None
    step.signal_everybody(signal.SIGTERM)
    assert step.wait() == 75
    (gate / "open").write_text("16")
    step.again()
    until(lambda: measured(folder) > 10, "more rounds; another one waits")
    step.signal_everybody(signal.SIGKILL)
    step.wait()
    (gate / "open").write_text("1000")
    step.again()
    all_measured(step)
    rows = concluded(folder, backend)
    assert rows.complete, rows
