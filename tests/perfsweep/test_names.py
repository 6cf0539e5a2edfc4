"""A user's own packages called conf, pipelines, slurm, tests or workloads are what that code imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from namesakes import SMALL, namesakes, outcomes, python

FROM_A_NOTEBOOK = """
import perfsweep
sweep = perfsweep.sweep(
    workload="workloads.halving:Halving", name="own", axes={"add": ["once"]}, tracking="disabled",
    measure={"rounds": 1, "servers": 1, "repeats": 0, "iterations": 8, "timed_parity": False, "look": True},
)
from conf.values import MINE
from slurm.site import MINE
from workloads.api import MINE
"""


@pytest.mark.slow
def test_a_sweep_from_a_notebook_imports_the_users_packages(tmp_path: Path) -> None:
    """A notebook's folder is first on the import path, and its code lies in no file.

    The folders are bare: a package of the same name anywhere on the import path would win against them.
    """
    folder = namesakes(tmp_path, packages=False)
    python(folder, "-", stdin=FROM_A_NOTEBOOK)
    assert outcomes(folder) == {"ok"}


@pytest.mark.slow
def test_what_is_called_perfsweep_itself_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "perfsweep").mkdir()
    (tmp_path / "perfsweep/mine.py").write_text("")
    (tmp_path / "train.py").write_text("import torch\n")
    words = ("workload=script", "workload.path=train.py", *SMALL)
    said = python(tmp_path, "-P", "-m", "perfsweep", "sweep", *words, status=2)  # as the console script does
    place = tmp_path / "perfsweep"
    assert f"workload.path=train.py: {place} has the name of perfsweep" in said and "rename it" in said


@pytest.mark.slow
def test_a_folder_called_perfsweep_without_code_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "perfsweep").mkdir()
    (tmp_path / "train.py").write_text("import torch\n")
    words = ("workload=script", "workload.path=train.py", "axes.optimizer=[foreach]", *SMALL)
    assert "2 arms" in python(tmp_path, "-m", "perfsweep", "sweep", *words, "dry_run=true")
