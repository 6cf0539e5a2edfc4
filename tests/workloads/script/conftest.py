"""Scripts that are set up in the test's own process."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from scripted import BASELINE, SCRIPTS, Start, Write, context, running

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.workload import Script


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Set a script up as a trial does; it is ended after the test."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as endings:

        def begin(
            path: Path | str,
            levels: Mapping[str, LevelValue] = BASELINE,
            seconds: float = 60.0,
            **fields: Any,
        ) -> Script:
            file = SCRIPTS / path if isinstance(path, str) else path
            config = Script.planned(ScriptConfig(path=str(file), **fields))
            around = context(tmp_path, deadline=time.monotonic() + seconds)
            return endings.enter_context(running(config, around, levels))

        yield begin


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a script, or a module beside it."""

    def written(text: str, name: str = "train.py") -> Path:
        file = tmp_path / name
        file.write_text(textwrap.dedent(text).lstrip())
        return file

    return written


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with files, a folder and links."""
    folder = tmp_path / "mine"
    (folder / "full").mkdir(parents=True)
    (folder / "there.txt").write_text("mine")
    (folder / "full/inner.txt").write_text("mine")
    (folder / "full/latest").symlink_to("inner.txt")
    (folder / "linked").symlink_to(folder / "full")
    return folder
