"""Sweeps on a real Slurm that publish while they run, and what may befall jobs and the server meanwhile.

What may befall any pack, such as other outages, SIGTERM, and a second publisher, is tested without Slurm in
tests/pipelines/publish/test_packs_online.py, where a pack is the same.
Each case prints rows produced, rows in W&B when the sweep had ended, and rows after `publish`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import Bench
from loopback import Action, Fault, Loopback
from loopback.server import KEY
from published_rows import concluded
from waiting import until

from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.states import End

pytestmark = pytest.mark.slow

TRACKED = (
    *(
        "tracking=online",
        "tracking.entity=team",
        "tracking.share=1.0",
        "tracking.patience_s=10",
        "tracking.uploads=1",
    ),
    *("measure.rounds=8", "measure.iterations=60", "workload.products=300"),
)


class Tracked:
    """A sweep of the toy on Slurm, of an account that has logged in on the login node."""

    def __init__(self, bench: Bench, backend: Loopback) -> None:
        self.bench, self.backend = bench, backend
        self.folder = SweepFolder(bench.folder / "runs" / "toy")
        self.command = self.start()

    def start(self) -> subprocess.Popen[str]:
        return self.bench.start(*self.bench.sweep(*TRACKED))

    def element(self) -> str:
        """The running array element."""
        arrays = [s.array for s in Journal(self.folder.submissions_file).submissions.values() if s.array]
        return f"{arrays[-1]}_0"

    def fed(self) -> None:
        """Wait until rows have arrived from the job."""
        until(lambda: self.backend.rows() > 0, "the first rows")

    def ended(self) -> str:
        output, _ = self.command.communicate(timeout=300)
        assert self.command.returncode == 0, output
        return output

    def endings(self) -> list[End]:
        return [
            end
            for s in Journal(self.folder.submissions_file).submissions.values()
            for end in s.ended.values()
        ]


@pytest.fixture
def tracked(bench: Bench, backend: Loopback, shell: pytest.MonkeyPatch) -> Tracked:
    shell.delenv("WANDB_API_KEY")  # jobs never inherit it
    login = Path(os.environ["HOME"]) / ".netrc"
    login.write_text(f"machine 127.0.0.1:{backend.port} login user password {KEY}\n")
    login.chmod(0o600)
    return Tracked(bench, backend)


def test_rounds_are_fed_from_the_job_while_it_runs(tracked: Tracked) -> None:
    tracked.fed()
    assert tracked.bench.show(tracked.element())["JobState"] == "RUNNING"
    tracked.ended()
    rows = concluded("none, on Slurm", tracked.folder, tracked.backend)
    assert rows.complete, rows
    assert rows.before > 0


def test_an_outage_costs_no_job_and_no_row(tracked: Tracked) -> None:
    tracked.fed()
    with tracked.backend.showing(Fault("", Action.DROP)):
        tracked.ended()
    assert tracked.endings() == [End.DONE]
    rows = concluded("server down in the middle, on Slurm", tracked.folder, tracked.backend)
    assert rows.complete, rows


def killed(tracked: Tracked) -> list[End]:
    step = f"{tracked.bench.show(tracked.element())['JobId']}.0"
    tracked.bench.cluster.client("scancel", "--signal=KILL", step)
    return [End.NO_RESULT, End.DONE]


def cancelled_and_asked_for_again(tracked: Tracked) -> list[End]:
    tracked.bench.cluster.client("scancel", tracked.element())
    tracked.command.communicate(timeout=300)
    assert tracked.command.returncode != 0
    tracked.command = tracked.start()
    return [End.CANCELLED, End.DONE]


def requeued(tracked: Tracked) -> list[End]:
    element = tracked.element()
    tracked.bench.cluster.client("scontrol", "requeue", element)
    tracked.bench.start_now(element)
    assert tracked.bench.show(element)["Restarts"] == "1"
    return [End.DONE]


@pytest.mark.parametrize("strike", [killed, cancelled_and_asked_for_again, requeued])
def test_what_happens_to_the_job_costs_no_row(
    tracked: Tracked, strike: Callable[[Tracked], list[End]]
) -> None:
    tracked.fed()
    expected = strike(tracked)
    tracked.ended()
    assert tracked.endings() == expected
    rows = concluded(f"{strike.__name__.replace('_', ' ')}, on Slurm", tracked.folder, tracked.backend)
    assert rows.complete, rows
