"""Publishing as people start it: silent, offline unless asked, whatever the shell says about W&B."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded import IDENTITY, NAIVE, Built

pytestmark = pytest.mark.slow


@pytest.fixture
def connections() -> Iterator[tuple[str, list[bytes]]]:
    """The URL of a proxy, and what anybody said to it."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            heard.append(connection.recv(64))
            connection.close()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(timeout=5)


def test_the_command_ignores_what_the_shell_says_about_wandb_and_says_so(
    sweep: Built, tmp_path: Path, connections: tuple[str, list[bytes]]
) -> None:
    proxy, heard = connections
    home = tmp_path / "home"
    home.mkdir()
    shell = {
        "WANDB_MODE": "online",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_RUN_ID": "stolen",
        "WANDB_RESUME": "must",
        "WANDB_PROJECT": "elsewhere",
        "WANDB_TAGS": "x,y",
        "WANDB_DIR": str(home),
        "WANDB_BASE_URL": "http://127.0.0.1:9",
        "WANDB_SILENT": "false",
        "WANDB_CONSOLE": "wrap",
    }
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), proxy)
    done = subprocess.run(
        [sys.executable, "-m", "perfsweep.pipelines.cli", "publish", "--offline", str(sweep.folder.path)],
        env={**os.environ, **shell, **proxies, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    place = sweep.folder.wandb_dir
    upload = f"upload them with `perfsweep publish {sweep.folder.path}`"
    *said, last = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert last == f"W&B: 3 runs, 3 of them new or changed, 51 of 51 rows in {place}; {upload}"
    assert "W&B: WANDB_RUN_ID of your shell has no effect: perfsweep sets this itself; unset it" in said
    assert any(
        line.startswith("W&B: WANDB_PROJECT=elsewhere of your shell contradicts tracking.project=speed")
        for line in said
    )
    assert heard == []
    assert list(home.rglob("*")) == []
    run = sweep.run_file(NAIVE)
    assert (run.run_id, run.project, run.tags) == (
        f"{IDENTITY}-{NAIVE.id}-p000",
        "speed",
        ("Spinner", "demo", "baseline"),
    )
    secret = b"0" * 40
    assert not [
        path for path in sweep.folder.path.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]


def test_what_starts_packs_and_asks_a_server_does_not_import_wandb() -> None:
    code = """
import sys, perfsweep.pipelines.publish.publishing, perfsweep.pipelines.execution.pack
from perfsweep.pipelines.publish.server import probe
from perfsweep.pipelines.store.options import TrackingConfig
probe(TrackingConfig(mode='online', base_url='http://127.0.0.1:9'), {})
sys.exit('wandb' in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
