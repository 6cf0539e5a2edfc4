"""Publishers that meet, and what killed ones leave."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import FAST, IDENTITY, NAIVE, Built, publish_here

from pipelines.publish import worker
from pipelines.publish.publish import publish
from pipelines.publish.worker import BUSY, run_lock, staging

HOLD = """
import sys, time
from pathlib import Path
from pipelines.publish.worker import staging
with staging(Path(sys.argv[1])) as aside:
    print(aside, flush=True)
    time.sleep(600)
"""


def test_a_run_that_another_publisher_keeps_is_left_alone_and_named(
    sweep: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WAIT_S", 0.2)
    with run_lock(sweep.folder, f"{IDENTITY}-{FAST.id}-p000") as ours:
        assert ours
        done = publish_here(sweep)
    assert [(run.arm, run.complete) for run in done.runs] == [(NAIVE.id, True), (FAST.id, False)]
    assert done.runs[1].note == BUSY
    assert publish(sweep.folder, mode="offline").complete


def test_the_folder_of_a_killed_publisher_is_cleared_away_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    publishers = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, living = (Path(process.stdout.readline().strip()) for process in publishers if process.stdout)
        publishers[0].send_signal(signal.SIGKILL)
        publishers[0].wait()
        assert dead.exists()
        with staging(tmp_path) as mine:
            assert not dead.exists()
            assert living.exists()
            assert mine.exists()
        assert not mine.exists()
    finally:
        for process in publishers:
            process.kill()
            process.wait()
