"""A user's own packages called conf, pipelines, slurm, tests or workloads are what that code imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from namesakes import CLASS, SCRIPT, SMALL, namesakes, outcomes, python

FROM_A_NOTEBOOK = """
import perfsweep
sweep = perfsweep.sweep(
    workload="workloads.halving:Halving", name="own", axes={"add": ["once"]}, tracking="disabled",
    measure={"rounds": 2, "servers": 1, "repeats": 0, "iterations": 8, "timed_parity": False, "look": True},
)
from workloads.api import MINE
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bare folders: a package of the same name anywhere on the import path would win against them."""
    return namesakes(tmp_path, packages=False)


@pytest.mark.slow
def test_the_public_interface_and_the_users_packages_are_imported_side_by_side(folder: Path) -> None:
    code = "import perfsweep; perfsweep.sweep; import conf.values, slurm.site, workloads.api as own; own.MINE"
    python(folder, "-c", code)
    assert "digits" in python(folder, "-m", "perfsweep", "list")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "packages"), [(SCRIPT, False), (CLASS, True)], ids=["script", "packages"])
def test_every_trial_of_a_sweep_imports_the_users_packages(
    tmp_path: Path, words: tuple[str, ...], packages: bool
) -> None:
    folder = namesakes(tmp_path, packages=packages)
    python(folder, "-m", "perfsweep", "sweep", *words, *SMALL)
    assert outcomes(folder) == {"ok"}


@pytest.mark.slow
def test_a_sweep_from_a_notebook_imports_the_users_packages(folder: Path) -> None:
    """A notebook's folder is first on the import path, and its code lies in no file."""
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
