"""A sweep on a real Slurm that publishes while it runs, and is cancelled.

What may befall any pack, such as outages, SIGTERM, SIGKILL, and a second publisher, is tested without Slurm
in tests/pipelines/publish/test_packs_online.py, where a pack is the same.
It prints rows produced, rows in W&B when the sweep had ended, and rows after `publish`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from bench import Bench
from loopback import Loopback
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


def test_a_sweep_that_is_cancelled_and_asked_for_again_is_fed_from_its_jobs_and_loses_no_row(
    tracked: Tracked,
) -> None:
    until(lambda: tracked.backend.rows() > 0, "the first rows")
    assert tracked.bench.show(tracked.element())["JobState"] == "RUNNING"
    tracked.bench.cluster.client("scancel", tracked.element())
    tracked.command.communicate(timeout=300)
    assert tracked.command.returncode != 0
    tracked.command = tracked.start()
    output, _ = tracked.command.communicate(timeout=300)
    assert tracked.command.returncode == 0, output
    assert tracked.endings() == [End.CANCELLED, End.DONE]
    rows = concluded("cancelled and asked for again, on Slurm", tracked.folder, tracked.backend)
    assert rows.complete, rows
    assert rows.before > 0
