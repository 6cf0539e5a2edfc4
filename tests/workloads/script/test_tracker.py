"""The script's own W&B follows perfsweep's switch."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from loops import LOOP
from scripted import context, started

from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.workload import Script

FAKE = """
def init(project=None, mode=None, **others): print('begun', mode)
def login(**others): print('logged in')
"""
ASKS = "import json, wandb\nwandb.login(key='k')\nwandb.init(project='p', mode='online')\n"
TRACKING = {"off": {}, "on": {"env": {"WANDB_MODE": "offline"}}}


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


@pytest.mark.parametrize(
    ("level", "begun"), [("off", "begun disabled\n"), ("on", "logged in\nbegun offline\n")]
)
def test_a_level_of_ones_own_says_in_which_mode_it_logs(
    folder: Path, capfd: pytest.CaptureFixture[str], level: str, begun: str
) -> None:
    (folder / "train.py").write_text(ASKS + LOOP)
    config = ScriptConfig("train.py", folder=str(folder), toggles={"tracking": TRACKING})
    script = Script.configured(config)()
    script.setup(config, {"tracking": level}, context(folder / "runs"))
    script.close()
    assert capfd.readouterr().out == begun


@pytest.mark.parametrize(("text", "times"), [(ASKS, 1), ("import wandb\n", 0)])
def test_runs_that_were_off_are_counted_where_the_script_really_began_them(
    folder: Path, text: str, times: int
) -> None:
    with started(folder, text + LOOP) as script:
        ((counter, remark),) = script.remarks
        assert "the script's W&B was off; a toggle" in remark
        assert script.counters()[counter] == times


def test_a_toggle_that_is_about_it_needs_no_remark(folder: Path) -> None:
    (folder / "train.py").write_text(ASKS + LOOP)
    config = ScriptConfig("train.py", folder=str(folder), toggles={"tracking": TRACKING})
    assert Script.configured(config).remarks == ()
