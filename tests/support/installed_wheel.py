"""The wheel of this checkout in an environment of its own: built from its sdist, once for each process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


@cache
def sdist() -> Path:
    """The archive of the sources."""
    source = _place() / "source" / "perfsweep"
    shutil.copytree(
        ROOT,
        source,
        symlinks=True,  # src leads to the folders, as it does in a checkout
        ignore=lambda folder, names: [n for n in names if n in LEFT_OUT or n.endswith(".egg-info")],
    )
    return _built("sdist", source)


@cache
def wheel() -> Path:
    """The wheel, built from nothing but what the sdist holds."""
    unpacked = _place() / "unpacked"
    with tarfile.open(sdist()) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    return _built("wheel", folder)


@cache
def python() -> Path:
    """The interpreter of an environment that holds the wheel, and sees what is installed here beside it."""
    place = _place() / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    inside = place / "bin/python"
    folder = Path(
        run(inside, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip()
    )
    # A line in a .pth makes packages visible, but not the finders of editable installs beside them.
    (folder / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = ["-m", "pip", "--disable-pip-version-check", "--python", str(inside)]
    run(sys.executable, *pip, "install", "--quiet", "--no-deps", "--no-index", wheel(), cwd=place)
    return inside


@cache
def _place() -> Path:
    """A folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="perfsweep-wheel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _built(kind: str, source: Path) -> Path:
    """An sdist or a wheel, by the backend itself: no index is asked for it."""
    out = _place() / kind
    out.mkdir()
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(out)!r}))"
    return out / run(sys.executable, "-c", code, cwd=source).split()[-1]
