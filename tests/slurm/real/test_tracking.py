"""A sweep on a real Slurm that publishes while it runs.

What may befall any pack, such as outages, SIGTERM, SIGKILL, and a second publisher, is tested without Slurm
in tests/pipelines/publish/test_packs_online.py, where a pack is the same.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench import Bench
from loopback import Loopback
from loopback.server import KEY
from published_rows import concluded
from waiting import until

from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.slurm.journal import Journal

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


def test_a_sweep_is_fed_from_its_jobs_of_an_account_that_has_logged_in_on_the_login_node(
    bench: Bench, backend: Loopback, shell: pytest.MonkeyPatch
) -> None:
    shell.delenv("WANDB_API_KEY")  # jobs never inherit it
    login = Path(os.environ["HOME"]) / ".netrc"
    login.write_text(f"machine 127.0.0.1:{backend.port} login user password {KEY}\n")
    login.chmod(0o600)
    folder = SweepFolder(bench.folder / "runs" / "toy")
    sweep = bench.start(*bench.sweep(*TRACKED))
    until(lambda: backend.rows() > 0, "the first rows")
    (submission,) = Journal(folder.submissions_file).submissions.values()
    assert bench.show(f"{submission.array}_0")["JobState"] == "RUNNING"
    output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    rows = concluded(folder, backend)
    assert rows.complete, rows
    assert rows.before > 0
