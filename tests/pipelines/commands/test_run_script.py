"""`perfsweep run train.py --with tuned.yaml`: a script's own streams and status, with levels from outside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typed import ended

from perfsweep.pipelines.commands import run
from perfsweep.pipelines.commands.run import read_levels
from perfsweep.pipelines.exits import MISTAKE, SOME_FAILED
from perfsweep.workloads.api import Device, Evidence
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import whole_run
from perfsweep.workloads.script.config import ScriptConfig

SCRIPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for number in range(20):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
open("weights.txt", "w").write("saved")
print("fused:", optimizer.defaults["fused"], *sys.argv[1:])
if "--fail" in sys.argv:
    raise KeyError("late")
sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "tuned.yaml").write_text("# what won\noptimizer: fused\n")
    return tmp_path


@pytest.mark.slow
def test_a_script_is_checked_and_then_runs_to_its_end_with_the_levels(folder: Path) -> None:
    command = [sys.executable, "-m", "perfsweep", "run", "train.py", "--with", "tuned.yaml"]
    command += ["--", "--lr=1", "x=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout == "fused: True --lr=1 x=2\n", done.stderr
    assert done.returncode == 3, "the status is the script's"
    assert "train.py runs with optimizer=fused: results of its first 12 iterations" in done.stderr
    assert (folder / "weights.txt").read_text() == "saved", "it may write where it runs"


@pytest.mark.slow
def test_what_a_script_raises_is_told_from_its_own_first_line(folder: Path) -> None:
    config = ScriptConfig(path="train.py", args="--fail")
    text = whole_run.said(config, {"optimizer": "fused"}, Device())
    command = [sys.executable, "-P", "-m", whole_run.__name__, text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 1
    told = done.stderr.partition("Traceback")[2]
    assert told.splitlines()[1].strip().startswith(f'File "{folder / "train.py"}", line 13')
    assert told.rstrip().endswith("KeyError: 'late'")


def test_levels_that_change_results_are_not_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = iter([1.0, 2.0])
    found = lambda *about: Evidence({"losses": np.array([next(losses)])})  # noqa: E731
    monkeypatch.setattr(run, "_evidence", found)
    monkeypatch.setattr(run, "_become", lambda *about: pytest.fail("the script was run"))
    assert ended("run", "train.py", "--with", "tuned.yaml") == SOME_FAILED
    assert "train.py is not run: with optimizer=fused its results are different (" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1]", "it has no levels. Write TOGGLE: LEVEL lines"),
        ("", "it has no levels"),
        ("- a", "must hold a mapping of names to values. Name a file"),
        ("a: b: c", "line 1 is no YAML"),
    ],
)
def test_a_file_without_levels_is_named_in_one_sentence(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "levels.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as error:
        read_levels(file)
    assert str(error.value).startswith(f"--with={file}") and "\n" not in str(error.value)


def test_levels_are_read_as_they_are_in_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "levels.yaml"
    file.write_text('num_workers: 2\noptimizer: fused\npin_memory: "on"\n')
    assert read_levels(file) == {"num_workers": 2, "optimizer": "fused", "pin_memory": "on"}
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_levels(tmp_path / "absent.yaml")


MISTAKES = {
    "no level": (["train.py"], "no level is given. Name a file, such as --with runs/train-tune/tuned.yaml"),
    "an unknown level": (["train.py", "toggles.optimizer=fast"], "toggles.optimizer=fast is not a level"),
    "an argument that is not after --": (
        ["train.py", "--width=3"],
        "--width=3 is no option of run. Put arguments of the script after --: perfsweep run train.py",
    ),
    "no script": (["--with", "tuned.yaml"], "these options are about a script; name it, as train.py"),
    "a script that is not there": (["absent.py", "--with", "tuned.yaml"], "absent.py does not exist"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    words, told = MISTAKES[name]
    assert ended("run", *words) == MISTAKE
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1
