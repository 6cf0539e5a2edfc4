"""The script's own W&B follows perfsweep's switch."""

# Drives `tracker` of perfsweep.workloads.script.
from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from loops import LOOP
from scripted import started

FAKE = """
def init(project=None, mode=None, **others): print('begun', mode)
def login(**others): print('logged in')
"""
ASKS = "import json, wandb\nwandb.login(key='k')\nwandb.init(project='p', mode='online')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/wandb.py").write_text(FAKE)
    return tmp_path / "mine"


def test_a_mode_that_the_script_asks_for_does_not_beat_the_switch(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with started(folder, ASKS + "import os; print(os.environ['WANDB_MODE'])\n" + LOOP):
        pass
    shown = capfd.readouterr()
    assert shown.out == "begun disabled\ndisabled\n"
    assert shown.err.count("WANDB_MODE=disabled") == 1
    assert "WANDB_MODE" not in os.environ
