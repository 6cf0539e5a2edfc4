"""A process of ours whose code was closed or removed while it started says so in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfsweep.pipelines import own_code

OWN_CODE = Path(own_code.__file__).parent / "trial/process.py"
OURS, THEIRS = "perfsweep.pipelines.trial.process", "users_module"


@pytest.mark.parametrize(
    ("module", "error", "gone"),
    [
        (OURS, ModuleNotFoundError("x", name="perfsweep.pipelines.trial.process"), True),
        (OURS, ModuleNotFoundError("x", name="perfsweep"), True),
        (OURS, ModuleNotFoundError("x", name="torch"), False),
        (OURS, ModuleNotFoundError("x", name="perfsweep_of_users"), False),
        (OURS, ModuleNotFoundError("x"), False),
        (OURS, ImportError("cannot import name", name="perfsweep.pipelines.execution"), True),
        (THEIRS, ModuleNotFoundError("x", name="perfsweep.pipelines.trial.proces"), False),
        (OURS, PermissionError(13, "x", str(OWN_CODE)), True),
        (THEIRS, PermissionError(13, "x", str(OWN_CODE.parents[2] / "users_module.py")), True),
        (THEIRS, PermissionError(13, "x", "/srv/data/x"), False),
        (OURS, PermissionError(), False),
    ],
)
def test_code_of_ours_that_is_gone_is_told_from_a_users_mistake(
    module: str, error: Exception, gone: bool
) -> None:
    assert own_code.is_gone(module, error) == gone


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfsweep.pipelines.own_code", *words]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the code as a sweep has it, of two modules."""
    package = tmp_path / "perfsweep"
    for module in ("pipelines.own_code", "workloads.imports"):
        file = package / (module.replace(".", "/") + ".py")
        file.parent.mkdir(parents=True)
        file.write_text(Path(str(sys.modules[f"perfsweep.{module}"].__file__)).read_text())
    (package / "work.py").write_text(
        "from perfsweep import part\n\ndef main(words):\n    print(*words, part.SIGN)\n    return 5\n"
    )
    (package / "part.py").write_text("SIGN = '!'\n")
    (package / "__init__.py").touch()
    return tmp_path


def test_a_module_is_run_with_its_arguments_and_ends_with_its_status(copy: Path) -> None:
    done = run("perfsweep.work", "a", "b", folder=copy)
    assert (done.returncode, done.stdout, done.stderr) == (5, "a b !\n", "")


def test_code_that_was_removed_meanwhile_is_one_line(copy: Path) -> None:
    (copy / "perfsweep/part.py").unlink()
    done = run("perfsweep.work", "a", folder=copy)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{copy}: the code cannot be read (cannot import name 'part' from 'perfsweep'")
    assert line.endswith("; fix this and start the sweep again")
    assert (done.returncode, done.stderr) == (own_code.GONE, "")


def test_a_mistake_in_what_is_imported_is_shown_whole(copy: Path) -> None:
    (copy / "perfsweep/part.py").write_text("import a_library_that_is_not_here\n")
    done = run("perfsweep.work", folder=copy)
    assert done.returncode == 1 and "a_library_that_is_not_here" in done.stderr.splitlines()[-1]
