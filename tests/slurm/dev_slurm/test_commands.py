"""The commands behind `make slurm-up` and its companions, without a Slurm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dev_slurm import __main__ as dev

from perfsweep.slurm.errors import ClusterError


class Cluster:
    """Notes what is asked of it."""

    asked: list[Any] = []
    missing = ""

    def __init__(self, settings: Any) -> None:
        self.settings, self.env = settings, {"SLURM_CONF": "slurm.conf"}

    def up(self) -> None:
        if self.missing:
            raise ClusterError(self.missing)
        self.asked.append(("up", self.settings.root, self.settings.port, self.settings.accounting))

    def down(self) -> None:
        self.asked.append("down")

    def client(self, *words: str) -> str:
        return f"{' '.join(words)}\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(Cluster, "asked", [])
    monkeypatch.setattr(dev, "DevCluster", Cluster)
    monkeypatch.setattr(dev, "settings_in", lambda root: dev.Settings(root=root))
    return Cluster.asked


def test_where_there_is_no_slurm_the_reason_is_said(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Cluster, "missing", "slurmctld is not installed")
    assert dev.main(["up", f"--root={tmp_path}"]) == 2
    assert capsys.readouterr().err == "slurm-up: slurmctld is not installed\n"


def test_it_is_started_as_asked_and_says_how_to_reach_it(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["up", f"--root={tmp_path}", "--port=7000", "--accounting"]) == 0
    assert asked == [("up", tmp_path, 7000, True)]
    assert f"SLURM_CONF={dev.Settings(root=tmp_path).conf}" in capsys.readouterr().out


def test_what_is_not_there_is_not_stopped(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["down", f"--root={tmp_path}"]) == 0
    assert (asked, capsys.readouterr().out) == ([], "")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "slurm.conf").touch()
    assert dev.main(["down", f"--root={tmp_path}"]) == 0
    assert (asked, capsys.readouterr().out) == (["down"], f"Slurm of {tmp_path} is down\n")


def test_status_shows_nodes_and_all_jobs(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["status", f"--root={tmp_path}"]) == 0
    assert capsys.readouterr().out == "sinfo\nsqueue -t all\n"


def test_a_shell_sees_the_cluster(asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/fish")
    monkeypatch.setattr(
        dev, "os", SimpleNamespace(environ=dev.os.environ, execvpe=lambda *told: asked.append(told))
    )
    dev.main(["shell", f"--root={tmp_path}"])
    assert asked == [("/bin/fish", ["/bin/fish"], {"SLURM_CONF": "slurm.conf"})]
