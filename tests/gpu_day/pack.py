"""Pack what perfsweep needs, but torch, for a node without a network: ``pack.py 3.12 FILE [THERE ...]``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

WITHOUT_WHEEL = ("antlr4-python3-runtime",)
LINUX = ("manylinux_2_28_x86_64", "manylinux_2_24_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def needed(name: str, found: dict[str, str]) -> dict[str, str]:
    """Versions of a package's dependencies, and of theirs, as they are installed here."""
    for one in map(Requirement, distribution(name).requires or ()):
        applies = one.marker is None or one.marker.evaluate({"extra": ""})
        if applies and one.name not in found and one.name != "torch":  # which comes with the node's CUDA
            found[one.name] = distribution(one.name).version
            needed(one.name, found)
    return found


def main(python: str, archive: str, *there: str) -> None:
    """Download, unpack and pack again, but `there`, and without what only W&B's own processes need."""
    with tempfile.TemporaryDirectory() as made:
        wheels, site = Path(made, "wheels"), Path(made, "site")
        pip = [sys.executable, "-m", "pip"]
        target = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:"]
        target += [f"--platform={one}" for one in LINUX]
        wanted = [
            f"{name}=={version}" for name, version in needed("perfsweep", {}).items() if name not in there
        ]
        bound = [one for one in wanted if one.startswith(WITHOUT_WHEEL)]
        plain = [one for one in wanted if one not in bound]
        subprocess.run([*pip, "download", "-q", "--no-deps", "-d", wheels, *target, *plain], check=True)
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", wheels, *bound], check=True)
        files = sorted(wheels.glob("*.whl"))
        install = ["install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", site]
        subprocess.run([*pip, *install, *target, *files], check=True)
        shutil.rmtree(site / "wandb" / "bin")
        # The node reads versions and commands from here; the modules are the repository's own.
        about = Path(str(distribution("perfsweep").locate_file("perfsweep-0.dist-info"))).parent
        for folder in about.glob("perfsweep-*.dist-info"):
            shutil.copytree(folder, site / folder.name)
        with tarfile.open(archive, "w:xz") as out:
            out.add(site, ".")
    print(f"{archive}: {Path(archive).stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
