"""Real packs that publish online while they run, and what may happen to them and to the server meanwhile.

Each case prints rows produced, rows in W&B when the pack had ended, and rows after `publish`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import Action, Fault, Loopback
from loopback.server import KEY
from published_rows import concluded, produced
from waiting import until

from perfsweep.pipelines.config.types import DesignConfig, TrackingConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.publish.publishing import publish
from perfsweep.pipelines.store.records import SweepFolder, read_record
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[2] / "support"
DEADLINE_S = 200.0
ROUNDS = 12


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
    manifest = plan.make_plan(toy, Device())
    made = SweepFolder(Path(toy.runs) / manifest.sweep.name)
    launch.prepare(made, manifest, "")
    return made


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
    rows = concluded("none", folder, backend)
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


def test_publishing_from_elsewhere_while_it_runs_doubles_nothing(
    folder: SweepFolder, backend: Loopback
) -> None:
    step = Step(folder)
    until(lambda: len(list(folder.path.glob("trials/*/p000-r002-a0/record.json"))) == 2)
    while step.process.poll() is None:
        publish(folder)
    assert step.wait() == 0
    rows = concluded("publish while it runs", folder, backend)
    assert rows.complete, rows


def all_measured(step: Step) -> None:
    assert step.wait() == 0, step.log.read_text()
    assert len(list(step.folder.path.glob("trials/*/p000-r*/record.json"))) >= 2 * ROUNDS


def test_a_server_that_hangs_costs_no_trial_and_no_row(folder: SweepFolder, backend: Loopback) -> None:
    step = Step(folder)
    until(lambda: fed(backend))  # the first of two runs: the other is still to come
    with backend.showing(Fault("", Action.HANG)):
        all_measured(step)
    warned = [line for line in step.log.read_text().splitlines() if line.startswith("W&B: ")]
    assert len(warned) == 1, step.log.read_text()
    rows = concluded("hangs in the middle", folder, backend)
    assert rows.complete, rows


def test_a_step_that_is_ended_and_requeued_measures_and_publishes_the_rest(
    folder: SweepFolder, backend: Loopback
) -> None:
    step = Step(folder)
    until(lambda: fed(backend))
    step.signal_everybody(signal.SIGTERM)
    assert step.wait() == 75
    step.again()
    all_measured(step)
    rows = concluded("requeue", folder, backend)
    assert rows.complete, rows


def test_sigkill_of_the_job(folder: SweepFolder, backend: Loopback) -> None:
    step = Step(folder)
    until(lambda: fed(backend))
    step.signal_everybody(signal.SIGKILL)
    step.wait()
    rows = concluded("SIGKILL of the job", folder, backend)
    assert rows.complete, rows


COMMAND = [
    *(
        sys.executable,
        "-m",
        "perfsweep.pipelines.cli",
        "sweep",
        "workload=toys.spinner:Spinner",
        "name=toy",
        "axes.work=[single]",
    ),
    *("tracking=online", "measure.rounds=6", "measure.iterations=10", "measure.servers=1"),
    *("measure.evidence_iterations=2", "measure.counting_iterations=2", "measure.timed_parity=false"),
]


def swept(folder: Path) -> tuple[int, list[str]]:
    """Exit status and output of a whole sweep."""
    env = {**os.environ, "PYTHONPATH": str(SUPPORT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        COMMAND,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_a_wrong_key_costs_one_line_and_no_trial(
    tmp_path: Path, backend: Loopback, shell: pytest.MonkeyPatch
) -> None:
    shell.setenv("WANDB_API_KEY", "f" * 40)
    status, lines = swept(tmp_path)
    assert status == 0, lines
    assert lines[0].startswith(
        f"W&B: {backend.url} refused the API key (401); log in again with `wandb login`; "
    )
    assert "f" * 40 not in "".join(lines)
    rows = produced(SweepFolder(tmp_path / "runs" / "toy"))
    assert f"{rows + 1} of {rows + 1} rows in runs/toy/wandb" in lines[-1]
    assert backend.rows() == 0
