"""The wheel, built from the sdist and installed away from the checkout, does all that the checkout does."""

from __future__ import annotations

import os
import tarfile
import tomllib
import zipfile
from pathlib import Path

import installed_wheel
import pytest
from installed_wheel import run
from namesakes import SCRIPT, SMALL, namesakes, outcomes

ROOT = Path(__file__).parents[2]
NAMES = ("conf", "perfsweep", "pipelines", "slurm", "tests", "workloads")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist() -> Path:
    return installed_wheel.sdist()


@pytest.fixture(scope="module")
def wheel() -> Path:
    return installed_wheel.wheel()


@pytest.fixture(scope="module")
def installed() -> Path:
    """The console script of the wheel."""
    return installed_wheel.python().with_name("perfsweep")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder with nothing of ours, and packages that have the names of our folders."""
    return namesakes(tmp_path)


def test_the_sdist_holds_licence_changelog_documentation_and_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "constraints.txt",
        "docs/trust.md",
    } <= names
    assert "tests/packaging/test_wheel.py" in names


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    source = ROOT / "src"
    folders = [Path(folder) for folder, *_ in os.walk(source / "perfsweep", followlinks=True)]
    files = (path for folder in folders if folder.name != "__pycache__" for path in folder.iterdir())
    own = {str(path.relative_to(source)) for path in files if path.is_file()}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == own


def test_metadata_declares_licence_pythons_and_version(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode()
    for python in ("3.11", "3.12", "3.13"):
        assert f"Classifier: Programming Language :: Python :: {python}" in metadata
    assert "License-Expression: MIT" in metadata
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nVersion: {version}\n" in metadata
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_installed_command_is_the_wheels(installed: Path, empty: Path) -> None:
    code = (
        "import importlib.util, perfsweep; print(perfsweep.__file__);"
        f" print([name for name in {NAMES} if importlib.util.find_spec(name)])"
    )
    file, names = run(installed.with_name("python"), "-c", code, cwd=empty).splitlines()
    assert str(installed.parents[1]) in file
    assert names == str(list(NAMES)), "of these the folder has its own, and the wheel brings none"
    code = code.replace("import importlib", "import sys; sys.path.pop(0); import importlib")
    assert run(installed.with_name("python"), "-c", code, cwd=empty).endswith("['perfsweep']\n")
    assert run(installed, "--version", cwd=empty).startswith("perfsweep ")
    assert "digits" in run(installed, "list", cwd=empty)


def test_a_script_is_measured_and_compared_and_a_workload_written_in_a_folder_with_packages_of_our_names(
    installed: Path, empty: Path
) -> None:
    run(installed, "init", ".", cwd=empty)
    run(installed, "new", "my_workload", cwd=empty)
    assert "rows=2048" in run(installed, "describe", "my_workload:MyWorkload", cwd=empty)
    assert "optimizer=foreach" in run(installed, "sweep", *SCRIPT, *SMALL, "name=own", cwd=empty)
    assert outcomes(empty) == {"ok"}, "every trial imports the user's packages"
    folder = empty / "runs/own"
    assert (folder / "report.html").stat().st_size > 20_000
    assert "optimizer=foreach" in run(installed, "compare", str(folder), cwd=empty)
    assert "rounds" in run(installed, "status", str(folder), cwd=empty)
