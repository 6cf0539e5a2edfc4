"""Publishing as people start it: silent, offline unless asked, whatever the shell says about W&B."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb
from recorded import IDENTITY, NAIVE, Built

from perfsweep import pipelines
from perfsweep.pipelines.config.wandb_settings import SETTINGS, own_environment
from perfsweep.pipelines.config.wandb_settings import settings as wandb_settings

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


@pytest.mark.parametrize("module", ["publish.publishing", "execution.pack", "trial.process"])
def test_what_starts_and_measures_trials_does_not_import_wandb(module: str) -> None:
    code = f"import sys, perfsweep.pipelines.{module}; sys.exit('wandb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_only_the_modules_named_after_it_know_wandb_and_none_gives_a_step() -> None:
    """W&B drops rows whose explicit step goes backwards."""
    for file in Path(pipelines.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text())
        imports = [
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        ]
        imports += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        knows = any(name.partition(".")[0] in ("wandb", "wandb_workspaces") for name in imports)
        assert not knows or file.parent.name == "publish" or file.name == "step_logging.py", file
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        logs = [call for call in calls if getattr(call.func, "attr", "") == "log"]
        assert not any(keyword.arg == "step" for call in logs for keyword in call.keywords), file


def test_wandb_knows_every_setting_of_the_table(tmp_path: Path) -> None:
    with own_environment(tmp_path):
        made = wandb.Settings(**wandb_settings(tmp_path))
        assert {name: getattr(made, name) for name in SETTINGS} == SETTINGS
        with pytest.raises(ValueError, match="x_unheard_of"):
            wandb.Settings(**wandb_settings(tmp_path, x_unheard_of=1))
