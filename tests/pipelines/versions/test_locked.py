"""Environments of requirements files: one for each content, and none that is half built."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from perfsweep.pipelines.locks import holding
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


@pytest.mark.parametrize("line", ["-r more.txt  # it's ours", "--requirement=more.txt # that's all"])
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
    copy = tmp_path / "same.txt"
    copy.write_text(file.read_text())
    assert environments.built(copy, tmp_path / "cache") == place
    assert log.read_text().count("pip install") == 2, "it is built once for a content"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("pyproject.toml", "", "is no lock; name a requirements.txt or a pylock.toml"),
        ("pylock.toml", "", "only uv installs such a lock here, and it is not on the path"),
        ("r.txt", "torch\n-e .\n", "line 2 asks for the folder in '-e .', which may change unnoticed"),
        ("r.txt", "/ ; sys_platform == 'linux'\n", "line 1 asks for the folder in "),
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


def test_without_locks_a_second_builder_is_refused_and_told_whom_to_wait_for(
    installer, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*how: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    installer()
    cache = tmp_path / "cache"
    cache.mkdir()
    with holding(cache / f"{environments.key(file)}.lock"), pytest.raises(ConfigError) as refused:
        environments.built(file, cache)
    assert f"wait for it (process {os.getpid()} on " in str(refused.value)
    assert environments.built(file, cache).is_dir()
    assert not list(cache.glob("*.owner"))
