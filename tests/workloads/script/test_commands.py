"""Every command takes a script as it takes any workload."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripted import SCRIPTS

from perfsweep.pipelines.store.records import SweepFolder

pytestmark = pytest.mark.slow

BESIDE = """
path: train.py
args: --width=64
toggles:
  batch: {16: "--batch_size=16", 32: "--batch_size=32", 64: "--batch_size=64", parity: stochastic}
sweeps:
  quick: {toggles: [optimizer], measure: {rounds: 2, look: true, iterations: 32, servers: 2}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a script, a file beside it, and a sweep of it."""
    place = tmp_path_factory.mktemp("user")
    shutil.copy(SCRIPTS / "plain.py", place / "train.py")
    (place / "train.yaml").write_text(BESIDE)
    perfsweep(place, "sweep", "workload=script:train.yaml")
    return place


def perfsweep(folder: Path, *words: str, statuses: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "perfsweep", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode in statuses, done.stdout + done.stderr
    return done.stdout


def test_a_sweep_of_a_script_is_compared_reported_and_kept_for_wandb(folder: Path) -> None:
    told = perfsweep(folder, "compare", "runs/train-quick")
    assert re.search(r"optimizer=fused .*tolerance|optimizer=fused .*identical", told), told
    assert (folder / "runs/train-quick/report.html").stat().st_size > 10_000
    assert "rows in" in perfsweep(folder, "publish", "runs/train-quick", "--offline")
    records = SweepFolder(folder / "runs/train-quick").read_manifest()
    assert records.sweep.declared is not None and records.sweep.origin == str(folder / "train.py")


def test_a_sweep_is_compared_where_its_script_is_gone(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "runs/train-quick", tmp_path / "kept")
    assert "optimizer=fused" in perfsweep(tmp_path, "compare", "kept")


def test_an_arm_of_a_script_is_profiled(folder: Path) -> None:
    told = perfsweep(
        folder, "profile", "workload=script:train.yaml", "profile.tool=torch", "measure.iterations=10"
    )
    assert "aten::" in told


def test_a_script_is_checked(folder: Path) -> None:
    told = perfsweep(
        folder, "check", "script:train.yaml", "workload.toggles={}", "--toggles", "amp,optimizer"
    )
    assert "no defects" in told
