"""What may be named as an environment, what is said of anything else, and how a process starts in one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from environments import answering

from perfsweep.pipelines.store.schema import Environment
from perfsweep.pipelines.versions.environments import find
from perfsweep.pipelines.versions.tree import variables
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.user_environment import INTERPRETER

GOOD = {"version": [3, 12, 4], "prefix": "/opt/env", "abi": "cpython-312", "missing": []}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment that answers as it should."""
    answering(tmp_path / "env/bin/python", **GOOD)
    return tmp_path / "env"


def test_a_folder_the_interpreter_in_it_and_its_name_on_the_path_are_one_environment(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = find(str(folder), tmp_path), find(str(folder / "bin/python"), tmp_path)
    assert one == other
    assert (one.python, one.abi, one.prefix) == ("3.12.4", "cpython-312", "/opt/env")
    assert one.interpreter == str(folder / "bin/python")
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    assert find("python", tmp_path) == one


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"version": [3, 9, 2]}, r"Python 3\.9\.2, and what measures needs 3\.11 or newer$"),
        ({"missing": ["torch"]}, r"has no torch, which trials need: \S+bin/python -m pip install torch$"),
    ],
)
def test_an_environment_that_cannot_measure_says_what_it_lacks(
    tmp_path: Path, facts: dict[str, object], sentence: str
) -> None:
    answering(tmp_path / "env/bin/python", **{**GOOD, **facts})
    with pytest.raises(ConfigError, match=sentence) as refused:
        find(str(tmp_path / "env"), tmp_path)
    assert str(refused.value).startswith(str(tmp_path / "env"))


def test_what_is_no_environment_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no program")
    (tmp_path / "says_no").write_text("#!/bin/sh\necho never >&2\nexit 3\n")
    (tmp_path / "says_no").chmod(0o755)
    for name, sentence in {
        "nowhere": "nowhere does not exist; name an interpreter",
        str(tmp_path / "empty"): "is a folder without bin/python; name that of a virtual environment",
        str(tmp_path / "text"): r"cannot be run \(Permission denied\)",
        str(
            tmp_path / "says_no"
        ): "is no Python interpreter that works: it ended with status 3 and said: never",
    }.items():
        with pytest.raises(ConfigError, match=sentence) as refused:
            find(name, tmp_path)
        assert "\n" not in str(refused.value)


def test_what_lies_where_somebody_works_is_not_taken_for_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("numpy.py").touch()
    program = answering(tmp_path / "python", **{**GOOD, "missing": ["numpy"]})
    program.write_text(program.read_text().replace("\n", "\n[ -e numpy.py ] && exit 1\n", 1))
    with pytest.raises(ConfigError, match="has no numpy, which trials need"):
        find("./python", tmp_path)


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
