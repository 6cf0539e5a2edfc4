"""How a process starts in another environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsweep.pipelines.store.schema import Environment
from perfsweep.pipelines.versions.activation import variables
from perfsweep.workloads.user_environment import INTERPRETER


@pytest.mark.parametrize("is_venv", [True, False])
def test_it_finds_our_code_its_packages_and_its_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_venv: bool
) -> None:
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    if is_venv:
        (tmp_path / "env/pyvenv.cfg").touch()
    monkeypatch.setenv("PATH", "/usr/bin")
    own = Environment(interpreter=str(python), prefix=str(tmp_path / "env"), python="3.12", abi="cpython-312")
    found = variables(own, tmp_path / "code", ["/ours", "/users", "", "/ours"])
    assert found == {
        INTERPRETER: str(python),
        "PYTHONPATH": os.pathsep.join(["/ours", "/users"]),
        "PATH": os.pathsep.join([str(python.parent), "/usr/bin"]),
        "VIRTUAL_ENV": str(tmp_path / "env") if is_venv else "",
    }
    monkeypatch.delenv("PATH")
    assert variables(own, tmp_path, [])["PATH"] == os.pathsep.join([str(python.parent), os.defpath])
