"""Environments of requirements files: one for each content, and none that is half built."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.versions import environments
from perfsweep.workloads.errors import ConfigError


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stand in for uv on the path: notes its calls, and does what a test says when it installs."""
    log = tmp_path / "calls"

    def stand_in(install: str = "") -> Path:
        program = tmp_path / "bin" / "uv"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {log}\n'
            'if [ "$1" = venv ]; then for place; do :; done; mkdir -p "$place/bin"; touch "$place/bin/python"'
            f"; else\n{install or ':'}\nfi\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        return log

    return stand_in


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "requirements.txt"
    file.write_text("torch==2.13.0\nnumpy\n")
    return file


def test_an_environment_is_built_once_for_a_content(installer, file: Path, tmp_path: Path) -> None:
    log = installer()
    first = environments.built(file, tmp_path / "cache")
    assert (first / "bin/python").exists()
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["venv", "pip"]
    copy = tmp_path / "same.txt"
    copy.write_text(file.read_text())
    assert environments.built(copy, tmp_path / "cache") == first
    assert len(log.read_text().splitlines()) == 2
    file.write_text("torch==2.14.1\nnumpy\n")
    assert environments.built(file, tmp_path / "cache") != first
    assert len(log.read_text().splitlines()) == 4


def test_an_environment_belongs_to_one_python(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = environments.key(file)
    monkeypatch.setattr("platform.python_version", lambda: "3.13.9")
    assert environments.key(file) != here


@pytest.mark.parametrize("line", ["-r more.txt", "--requirement=more.txt", "-c more.txt  # limits"])
def test_what_a_file_includes_belongs_to_its_content(file: Path, line: str) -> None:
    file.write_text(f"torch\n{line}\n")
    (file.parent / "more.txt").write_text("sympy==1.13\n-r requirements.txt\n")
    before = environments.key(file)
    (file.parent / "more.txt").write_text("sympy==1.14\n-r requirements.txt\n")
    assert environments.key(file) != before


def test_what_a_builder_left_half_done_is_never_taken_for_whole(
    installer, file: Path, tmp_path: Path
) -> None:
    installer("exit 1")
    place = tmp_path / "cache" / environments.key(file)
    with pytest.raises(ConfigError):
        environments.built(file, tmp_path / "cache")
    assert not place.exists()
    # As a builder leaves it that is killed: an interpreter is there, and not all packages.
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").touch()
    (place / "half").touch()
    log = installer()
    assert environments.built(file, tmp_path / "cache") == place
    assert not (place / "half").exists()
    assert log.read_text().count("pip install") == 2


def test_a_file_that_cannot_be_solved_says_what_the_installer_said(
    installer, file: Path, tmp_path: Path
) -> None:
    installer(
        'printf "  × No solution found when resolving dependencies:\\n  ╰─▶ Because there is no version of'
        ' torch==99, your requirements are unsatisfiable.\\n" >&2; exit 1'
    )
    with pytest.raises(ConfigError) as refused:
        environments.built(file, tmp_path / "cache")
    assert str(refused.value) == (
        f"{file}: uv cannot build an environment of it: No solution found when resolving dependencies:"
        " Because there is no version of torch==99, your requirements are unsatisfiable."
    )


@pytest.mark.slow
def test_pip_builds_where_there_is_no_uv(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    file.write_text("--no-index\nno-such-package-anywhere==1\n")
    with pytest.raises(ConfigError, match=r"pip cannot build .* No matching distribution found for no-such"):
        environments.built(file, tmp_path / "cache")
    file.write_text("--no-index\n")
    assert (environments.built(file, tmp_path / "cache") / "bin/python").exists()


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("uv.lock", "", "belongs to a project; make a file of it that needs no other: uv export --frozen"),
        ("poetry.lock", "", "poetry export -o requirements.txt"),
        ("pyproject.toml", "", "is no lock; name a requirements.txt or a pylock.toml"),
        ("pylock.toml", "", "only uv installs such a lock here, and it is not on the path"),
        ("r.txt", "torch\n-e .\n", "line 2 asks for the folder in '-e .', which may change unnoticed"),
        ("r.txt", "/tmp\n", "line 1 asks for the folder in '/tmp'"),
        ("r.txt", "-r nowhere.txt\n", "nowhere.txt cannot be read as text"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, name: str, text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    (tmp_path / name).write_text(text)
    assert environments.is_lock(tmp_path / name)
    with pytest.raises(ConfigError, match=sentence) as refused:
        environments.built(tmp_path / name, tmp_path / "cache")
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)


def test_without_uv_the_part_that_fails_is_named_with_its_error(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    python = tmp_path / "python"
    monkeypatch.setattr("sys.executable", str(python))

    def refusal(program: str) -> str:
        python.write_text(f"#!/bin/sh\n{program}\n")
        python.chmod(0o755)
        with pytest.raises(ConfigError) as refused:
            environments.built(file, tmp_path / "cache")
        return str(refused.value).removeprefix(f"{file}: ")

    no_venv = 'echo "ensurepip is not available"; exit 1'
    assert refusal(no_venv) == "venv cannot build an environment of it: ensurepip is not available"
    fails = "ERROR: Cannot find torch==9\nERROR: No match for torch==9\n[notice] a new pip"
    installs = f'[ "$2" = pip ] && {{ printf "{fails}\\n" >&2; exit 1; }}'
    makes = 'for place; do :; done; mkdir -p "$place/bin"; cp "$0" "$place/bin/python"'
    assert refusal(f"{installs}\n{makes}") == "pip cannot build an environment of it: No match for torch==9"


def test_of_a_long_complaint_the_end_is_told_up_to_four_hundred_characters(
    installer, file: Path, tmp_path: Path
) -> None:
    installer('for n in 1 2 3 4 5 6 7 8; do echo "line $n" >&2; done; exit 1')
    with pytest.raises(ConfigError, match=r"of it: line 3 line 4 line 5 line 6 line 7 line 8$"):
        environments.built(file, tmp_path / "cache")
    installer("printf '%0500d' 0 >&2; exit 1")
    with pytest.raises(ConfigError, match=r"of it: 0{400} \.\.\.$"):
        environments.built(file, tmp_path / "cache")


def test_packages_and_limits_that_look_like_more_are_no_folders_and_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torch").mkdir()
    (tmp_path / "r.txt").write_text("torch\n# -r nowhere.txt\n--no-index\n\n./wheel.whl\nnumpy # -e .\n")
    (tmp_path / "pylock.toml").write_text("-e .\n")
    assert environments.key(tmp_path / "r.txt") != environments.key(tmp_path / "pylock.toml")


def test_what_names_no_packages_is_an_interpreter(tmp_path: Path) -> None:
    names = ("r.txt", "r.in", "pylock.toml", "poetry.lock", "python", "other.lock")
    for name in names:
        (tmp_path / name).touch()
    assert [environments.is_lock(tmp_path / name) for name in names] == [True, True, True, True, False, False]
    (tmp_path / "env.txt").mkdir()
    assert not environments.is_lock(tmp_path / "env.txt")


def test_a_cache_that_cannot_be_made_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{file}/sub cannot hold environments: Not a directory"):
        environments.built(file, file / "sub")
