"""Publishers that meet, and what killed ones leave."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from perfsweep.pipelines.publish import worker
from perfsweep.pipelines.publish.pool import ASIDE
from perfsweep.pipelines.publish.worker import staging
from perfsweep.pipelines.store.locks import holding

HOLD = """
import sys, time
from pathlib import Path
from perfsweep.pipelines.publish.worker import staging
with staging(Path(sys.argv[1])) as aside:
    print(aside, flush=True)
    time.sleep(600)
"""


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


@pytest.mark.parametrize("files", [(), ("alive", "run.log")], ids=str)
def test_the_folder_of_a_publisher_that_was_killed_while_it_began_is_cleared_away(
    files: tuple[str, ...], tmp_path: Path
) -> None:
    left = tmp_path / f"{ASIDE}left"
    left.mkdir()
    for name in files:
        (left / name).touch()
    with staging(tmp_path) as mine:
        assert [*tmp_path.iterdir()] == [mine]


def test_a_publisher_whose_folder_was_cleared_away_before_it_had_the_lock_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def late(file: Path) -> AbstractContextManager[str]:
        seen.append(file.parent)
        if len(seen) == 1:
            with staging(tmp_path):  # another publisher, which finds nobody there
                assert not file.parent.exists()
        return holding(file)

    with monkeypatch.context() as patched:
        patched.setattr(worker, "holding", lambda file: late(file) if not seen else holding(file))
        with staging(tmp_path) as mine:
            assert mine.exists() and mine != seen[0]
            assert [*tmp_path.iterdir()] == [mine]
