"""The wheel of this checkout in an environment of its own: built from its sdist, once for a run of tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACE = "TESTS_WHEEL_IN"
"""Variable with a folder that the processes of a run of tests share."""
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


def sdist() -> Path:
    """The archive of the sources."""

    def made(folder: Path) -> Path:
        shutil.copytree(
            ROOT,
            folder / "perfsweep",
            symlinks=True,  # src leads to the folders, as it does in a checkout
            ignore=lambda folder, names: [n for n in names if n in LEFT_OUT or n.endswith(".egg-info")],
        )
        return _built("sdist", folder / "perfsweep")

    return _once("sdist", made)


def wheel() -> Path:
    """The wheel, built from nothing but what the sdist holds."""

    def made(folder: Path) -> Path:
        with tarfile.open(sdist()) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = folder.iterdir()
        return _built("wheel", unpacked)

    return _once("wheel", made)


def python() -> Path:
    """The interpreter of an environment that holds the wheel, and sees what is installed here too."""

    def made(folder: Path) -> Path:
        venv.create(folder, with_pip=False, symlinks=True)
        inside = folder / "bin/python"
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        libraries = Path(run(inside, "-c", ask, cwd=folder).strip())
        # A line in a .pth makes packages visible, but not the finders of editable installs among them.
        (libraries / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        pip = ["-m", "pip", "--disable-pip-version-check", "--python", str(inside)]
        run(sys.executable, *pip, "install", "--quiet", "--no-deps", "--no-index", wheel(), cwd=folder)
        return inside

    return _once("venv", made)


def _once(name: str, made: Callable[[Path], Path]) -> Path:
    """What is made in a folder by the first process that asks; the others wait for it."""
    place = Path(os.environ[PLACE])
    found = place / f"{name}.made"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            folder = place / name
            shutil.rmtree(folder, ignore_errors=True)  # left by one that failed
            folder.mkdir()
            found.write_text(str(made(folder)))
    return Path(found.read_text())


def _built(kind: str, source: Path) -> Path:
    """An sdist or a wheel, by the backend itself: no index is asked for it."""
    out = source.parent / "built"
    out.mkdir()
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(out)!r}))"
    return out / run(sys.executable, "-c", code, cwd=source).split()[-1]
