"""Trials run copies of a script's sources, whatever becomes of the originals."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from loops import LOOP
from scripted import context, run, running

from perfsweep.pipelines.store import code_snapshot
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.workload import Script

NAMES = ("snapped", "snapped_package", "snapped_package.inner", "snapped_bare", "snapped_bare.deep")
TRAIN = f"""
import inspect, snapped
from snapped_package import inner
from snapped_bare import deep
print(snapped.VALUE, inner.VALUE, deep.VALUE, __file__)
print(snapped.__file__, open(snapped.__file__.replace("snapped.py", "data.txt")).read())
print(inspect.getsource(snapped.told).strip())
{LOOP}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    for name, text in {
        "train.py": TRAIN,
        "snapped.py": "VALUE = 'first'\ndef told():\n    return 'as planned'\n",
        "snapped_package/__init__.py": "",
        "snapped_package/inner.py": "from snapped import VALUE",
        "snapped_bare/deep.py": "VALUE = 'third'",
        "data.txt": "data beside it",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return folder


@pytest.fixture
def config(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptConfig:
    """A script whose sources have been copied, and are to be run from there."""
    config = ScriptConfig("train.py", folder=str(folder))
    code_snapshot.take_sources(tmp_path / "code", "digest", Script.configured(config).files)
    for name, value in code_snapshot.sources_env(tmp_path / "code", "digest").items():
        monkeypatch.setenv(name, value)
    return config


def test_what_was_edited_or_deleted_meanwhile_runs_as_it_was(
    folder: Path, config: ScriptConfig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "snapped.py").write_text("VALUE = 'edited'\n# another line\ndef told(): pass")
    shutil.rmtree(folder / "snapped_package")
    shutil.rmtree(folder / "snapped_bare")
    (folder / "train.py").unlink()
    with running(config, context(tmp_path / "runs")) as script:
        run(script, 2)
    shown = capfd.readouterr().out
    assert f"first first third {folder / 'train.py'}" in shown
    assert f"{folder / 'snapped.py'} data beside it" in shown, "__file__ is the original's"
    assert "return 'as planned'" in shown, "and its lines are those that run"
    assert not any(isinstance(one, type) and one.__name__ == "_Finder" for one in map(type, sys.meta_path))
