"""The door for users' code: it costs a script nothing, and leads to the Python interface."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import perfsweep
from perfsweep.pipelines import api


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_it_imports_the_standard_library_only() -> None:
    code = "import sys; before = set(sys.modules); import perfsweep; print(*(set(sys.modules) - before))"
    packages = {name.partition(".")[0] for name in python("-c", code).split()}
    assert packages - set(sys.stdlib_module_names) == {"perfsweep"}


def test_importing_it_takes_twenty_milliseconds_of_processor_time() -> None:
    code = "import time; start = time.process_time(); import perfsweep; print(time.process_time() - start)"
    assert min(float(python("-c", code)) for _ in range(3)) < 0.02


def test_its_names_are_those_of_the_python_interface() -> None:
    assert perfsweep.open is api.open_sweep
    others = [name for name in perfsweep.__all__ if name not in ("mark", "open", "steps")]
    assert [getattr(perfsweep, name) for name in others] == [getattr(api, name) for name in others]
    assert dir(perfsweep) == sorted(perfsweep.__all__)


def test_a_name_that_it_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(AttributeError, match=r"perfsweep has no swep; it has: .*sweep"):
        _ = perfsweep.swep  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["conf", "pipelines", "slurm", "workloads"])
def test_a_folder_of_the_users_that_hides_a_package_of_ours_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    env = {**os.environ, "PYTHONPATH": str(Path(perfsweep.__file__).parents[1])}
    calls = (["-m", "perfsweep", "list"], ["-c", "import perfsweep; perfsweep.sweep"])
    for words in calls:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        last = done.stderr.strip().splitlines()[-1]
        assert f"{tmp_path / name} has the name of a package of perfsweep" in last
        assert f"rename the folder, such as my_{name}" in last


def test_folders_of_those_names_that_are_no_packages_are_in_nobodys_way(tmp_path: Path) -> None:
    for name in ("conf", "pipelines", "slurm", "workloads"):
        (tmp_path / name).mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(perfsweep.__file__).parents[1])}
    command = [sys.executable, "-m", "perfsweep", "list"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "digits" in done.stdout, done.stderr


def test_the_package_can_be_run_as_the_command() -> None:
    assert "every arm of a sweep" in python("-m", "perfsweep", "--help")
