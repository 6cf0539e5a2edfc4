"""What a person may name as an environment, and what is said of anything else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from environments import answering

from perfsweep.pipelines.store.schema import Environment, Version
from perfsweep.pipelines.versions.environments import find
from perfsweep.pipelines.versions.tree import notices
from perfsweep.workloads.errors import ConfigError

GOOD = {"version": [3, 12, 4], "prefix": "/opt/env", "abi": "cpython-312", "missing": []}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment that answers as it should."""
    answering(tmp_path / "env/bin/python", **GOOD)
    return tmp_path / "env"


def test_a_folder_and_the_interpreter_in_it_are_one_environment(folder: Path, tmp_path: Path) -> None:
    one, other = find(str(folder), tmp_path), find(str(folder / "bin/python"), tmp_path)
    assert one == other
    assert (one.python, one.abi, one.prefix) == ("3.12.4", "cpython-312", "/opt/env")
    assert one.interpreter == str(folder / "bin/python")


def test_a_link_to_an_interpreter_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """It is what leads to the packages of a virtual environment."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(folder / "bin/python")
    assert find(str(tmp_path / "venv"), tmp_path).interpreter == str(tmp_path / "venv/bin/python")


def test_an_interpreter_may_be_named_as_on_the_path(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    assert find("python", tmp_path).interpreter == str(folder / "bin/python")


def test_this_interpreter_tells_what_it_is(tmp_path: Path) -> None:
    found = find(sys.executable, tmp_path)
    assert found.prefix == sys.prefix and found.python == "{}.{}.{}".format(*sys.version_info)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"version": [3, 9, 2]}, r"Python 3\.9\.2, and what measures needs 3\.11 or newer$"),
        ({"missing": ["torch"]}, r"has no torch, which trials need: \S+bin/python -m pip install torch$"),
        ({"missing": ["torch", "numpy"]}, "has no torch and no numpy, which trials need"),
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


def test_environments_are_named_with_what_differs_in_all_of_them_first() -> None:
    def version(level: str, **packages: str) -> Version:
        environment = Environment(interpreter="", prefix="", python="3.12.4", abi="", packages=packages)
        return Version(
            levels={"environment": level}, digest=level, code="", config={}, environment=environment
        )

    one = version("a", torch="2.13.0+cpu", sympy="1.13", numpy="2.0", extra="1")
    other = version("b", torch="2.14.1", sympy="1.14", numpy="2.0")
    assert list(notices([one, other])) == [
        "environment=a: Python 3.12.4, torch 2.13.0+cpu",
        "environment=b: Python 3.12.4, torch 2.14.1",
        "packages that differ between environments: sympy 1.13 / 1.14, extra 1 / none",
    ]


def test_the_oldest_python_that_measures_may_print_before_it_answers(tmp_path: Path) -> None:
    program = answering(tmp_path / "env/bin/python", **{**GOOD, "version": [3, 11, 0]})
    program.write_text(program.read_text().replace("\n", "\necho welcome\n", 1))
    assert find(str(tmp_path / "env"), tmp_path).python == "3.11.0"


def test_a_program_that_never_answers_is_asked_whether_it_is_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfsweep.pipelines.versions.environments.FACTS_S", 0.05)
    (tmp_path / "hangs").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "hangs").chmod(0o755)
    with pytest.raises(ConfigError, match=r"did not answer within 0\.05 s; is it a Python interpreter\?$"):
        find(str(tmp_path / "hangs"), tmp_path)


def test_what_lies_where_somebody_works_is_not_taken_for_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("numpy.py").touch()
    program = answering(tmp_path / "python", **{**GOOD, "missing": ["numpy"]})
    program.write_text(program.read_text().replace("\n", "\n[ -e numpy.py ] && exit 1\n", 1))
    with pytest.raises(ConfigError, match="has no numpy, which trials need"):
        find("./python", tmp_path)
