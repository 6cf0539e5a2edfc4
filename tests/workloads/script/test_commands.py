"""Commands take a script as they take any workload."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripted import SCRIPTS

pytestmark = pytest.mark.slow

SWEEP = """
path: train.py
args: --width=64
sweeps:
  quick: {toggles: [optimizer], measure: {rounds: 1, look: true, iterations: 32, servers: 2}}
"""


def perfsweep(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "perfsweep", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sweep_of_a_script_is_compared_where_its_script_is_gone(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "plain.py", tmp_path / "train.py")
    (tmp_path / "train.yaml").write_text(SWEEP)
    perfsweep(tmp_path, "sweep", "workload=script:train.yaml")
    (tmp_path / "train.py").unlink()
    told = perfsweep(tmp_path, "compare", "runs/train-quick")
    assert re.search(r"optimizer=fused .*tolerance|optimizer=fused .*identical", told), told
    assert (tmp_path / "runs/train-quick/report.html").stat().st_size > 10_000


def test_an_arm_of_a_script_is_profiled(tmp_path: Path) -> None:
    shutil.copy(SCRIPTS / "plain.py", tmp_path / "train.py")
    words = ("workload=script", "workload.path=train.py", "profile.tool=torch", "measure.iterations=10")
    assert "aten::" in perfsweep(tmp_path, "profile", *words)
