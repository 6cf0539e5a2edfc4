"""Faults of server or disk while runs are published: records stay, nothing waits long, and publishing again
makes up for them.

A process of its own publishes again, as for users: one that hangs has a deadline, and no test waits for it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from loopback import Action, Fault, Loopback
from recorded import Built, build, publish_here, snapshot
from waiting import until

from perfsweep.pipelines.publish.published import Published
from perfsweep.pipelines.publish.publishing import publish
from perfsweep.pipelines.store.records import SweepFolder

PATIENCE_S = 10.0

UPLOADS = "file_stream"

LASTING = [
    ("401", Fault(UPLOADS, Action.STATUS, status=401), "lack"),
    ("down in the middle", Fault("", Action.DROP, skip=6), "lack"),
    ("hangs in the middle", Fault(UPLOADS, Action.HANG), "lack"),
]
PASSING = [Fault(UPLOADS, Action.DROP_AFTER, count=1), Fault(UPLOADS, Action.TRUNCATE, skip=1, count=1)]


@pytest.fixture
def online(tmp_path: Path, backend: Loopback) -> Built:
    """A recorded sweep that is to be published to the backend."""
    return build(tmp_path / "demo", mode="online", patience_s=PATIENCE_S, uploads=1)


def again(built: Built) -> Published:
    """Publish once more, without faults: a deadline that only a publisher that hangs meets."""
    return publish(built.folder, patience_s=120)


def says(done: Published) -> str:
    return f"{done.notice or ''} {done.warning or ''}"


@pytest.mark.slow
def test_whatever_happened_to_a_server_every_row_is_there_once_after_publishing_again(
    online: Built, backend: Loopback, shell: pytest.MonkeyPatch
) -> None:
    """One fault after the other, each upon what those before it have left."""

    def records() -> dict[str, int]:
        times = snapshot(online.folder.path)
        return {name: time for name, time in times.items() if not name.startswith("wandb")}

    untouched = records()
    shell.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    done = publish(online.folder)
    assert (done.mode, done.complete) == ("offline", True)
    assert says(done).startswith("http://127.0.0.1:9 cannot be reached (Connection refused)")
    shell.setenv("WANDB_BASE_URL", backend.url)
    for case, fault, reason in LASTING:
        with backend.showing(fault):
            done = publish(online.folder)  # what hangs does so until the end of this block
        assert reason in says(done), (case, done)
        assert "\n" not in says(done)
    with backend.showing(*PASSING):
        publish(online.folder)
    done = again(online)
    assert done.complete, done
    assert backend.rows() == online.produced
    assert publish_here(online, server=backend.url).new == 0
    assert records() == untouched


COMMAND = [sys.executable, "-m", "perfsweep.pipelines.cli", "publish"]


@pytest.mark.slow
def test_a_publisher_that_is_killed_leaves_nothing_that_stays_wrong(online: Built, backend: Loopback) -> None:
    with backend.showing(Fault(UPLOADS, Action.HANG, skip=1)):
        process = subprocess.Popen(
            [*COMMAND, str(online.folder.path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(lambda: any(UPLOADS in asked for asked in backend.requests))
        process.kill()
        process.wait()
        until(lambda: not publishing(online.folder.path))
    assert again(online).complete
    assert backend.rows() == online.produced


def publishing(folder: Path) -> list[str]:
    """Processes that publish this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        found += [line] if str(folder) in line else []
    return found


@pytest.mark.slow
def test_two_publishers_of_one_folder_and_one_of_its_copy_make_one_run_of_each_arm_in_the_end(
    online: Built, backend: Loopback, tmp_path: Path
) -> None:
    other = Built(SweepFolder(tmp_path / "copy"), online.manifest)
    shutil.copytree(online.folder.path, other.folder.path)
    processes = [
        subprocess.Popen([*COMMAND, str(one.folder.path)], stdout=subprocess.PIPE, text=True)
        for one in (online, other)
    ]
    done = publish(online.folder)
    told = [process.communicate(timeout=120)[0] for process in processes]
    assert processes[0].returncode == 0 and not done.warning, (done, told)
    assert again(online).complete
    assert backend.rows() == online.produced, told
    assert again(other).new == 0


def limit_files() -> None:
    """As on a full disk: files cannot grow beyond 8 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))


@pytest.mark.slow
def test_a_full_disk_is_said_and_made_good_later(online: Built, backend: Loopback) -> None:
    command = [*COMMAND, "--offline", str(online.folder.path)]
    done = subprocess.run(
        command, preexec_fn=limit_files, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == 1
    assert "the records are untouched, fix this and publish again" in done.stdout.splitlines()[-1]
    assert publish_here(online).complete
    assert again(online).complete
    assert backend.rows() == online.produced


@pytest.mark.slow
def test_a_project_that_does_not_exist_is_one_line(tmp_path: Path, shell: pytest.MonkeyPatch) -> None:
    built = build(tmp_path / "demo", mode="online", patience_s=PATIENCE_S)
    with Loopback(entities=("team",), projects=("given",)) as backend:
        shell.setenv("WANDB_BASE_URL", backend.url)
        shell.setenv("WANDB_API_KEY", next(iter(backend.keys)))
        done = publish(built.folder)
        assert "project speed not found" in says(done)
        assert "\n" not in says(done)
        assert backend.rows() == 0
    assert os.environ["WANDB_API_KEY"] not in says(done)
