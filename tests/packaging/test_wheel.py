"""The wheel, built from the sdist and installed away from the checkout, does all that the checkout does."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("conf", "perfsweep", "pipelines", "slurm", "workloads")

pytestmark = pytest.mark.slow

LEFT_OUT = {"__pycache__", ".venv", ".git", "runs", "build", "dist"}


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Output of a command that succeeds, in an environment that knows nothing of the checkout."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "WANDB", "VIRTUAL"))
    }
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**clean, **env}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """An sdist or a wheel, by the backend itself: no index is asked for it."""
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(out)!r}))"
    return out / run(sys.executable, "-c", code, cwd=source).split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import shutil

    source, out = tmp_path_factory.mktemp("source") / "perfsweep", tmp_path_factory.mktemp("sdist")
    shutil.copytree(
        ROOT,
        source,
        ignore=lambda folder, names: [n for n in names if n in LEFT_OUT or n.endswith(".egg-info")],
    )
    return build("sdist", source, out)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    unpacked, out = tmp_path_factory.mktemp("unpacked"), tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    return build("wheel", folder, out)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script in a virtual environment of its own, which sees the dependencies that are installed
    here."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin/python"
    folder = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip()
    )
    # A line in a .pth makes packages visible, but not the finders of editable installs beside them.
    (folder / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = ["-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run(sys.executable, *pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), cwd=place)
    return place / "bin/perfsweep"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    return tmp_path


def test_the_sdist_holds_licence_changelog_documentation_and_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "README.md",
        "constraints.txt",
        "docs/concepts.md",
    } <= names
    assert "tests/packaging/test_wheel.py" in names


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    own = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
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
        "import perfsweep, pipelines, workloads, slurm, conf; print(perfsweep.__file__, pipelines.__file__,"
        " workloads.__file__, slurm.__file__, conf.__file__)"
    )
    files = run(installed.with_name("python"), "-c", code, cwd=empty).split()
    assert all(str(installed.parents[1]) in file for file in files)
    assert run(installed, "--version", cwd=empty).startswith("perfsweep ")
    assert "digits" in run(installed, "list", cwd=empty)


def test_an_own_workload_is_written_planned_measured_and_compared_from_an_empty_folder(
    installed: Path, empty: Path
) -> None:
    run(installed, "init", ".", cwd=empty)
    run(installed, "new", "my_workload", cwd=empty)
    assert "rows=2048" in run(installed, "describe", "my_workload:MyWorkload", cwd=empty)
    sweep = [
        "sweep",
        "workload=my_workload:MyWorkload",
        "axes.prepare=[once]",
        *("measure=quick", "measure.rounds=3", "measure.servers=1", "workload.rows=512"),
    ]
    assert "prepare=once" in run(installed, *sweep, "tracking=disabled", cwd=empty)
    folder = empty / "runs/myworkload-quick"
    assert (folder / "report.html").stat().st_size > 20_000
    assert "prepare=once" in run(installed, "compare", str(folder), cwd=empty)
    assert "rounds" in run(installed, "status", str(folder), cwd=empty)


def test_a_workload_of_the_project_runs_from_the_wheel(installed: Path, empty: Path) -> None:
    assert "per unit" in run(
        installed, "run", "workload=digits", "workload.width=4", "measure.iterations=1", cwd=empty
    )
