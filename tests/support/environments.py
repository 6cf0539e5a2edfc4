"""Virtual environments for tests, with torch, numpy and what these need, and not a single package more."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

NEEDED = ("torch", "numpy")


def needed(names: Iterable[str] = NEEDED) -> dict[str, Distribution]:
    """The installed distributions of these names, and those that they require."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or Python
        if one.name not in found:
            found[one.name] = one
            plain = [line for line in one.requires or () if "extra ==" not in line]
            waiting += [match[0] for line in plain if (match := re.match(r"[\w.-]+", line))]
    return found


def bare(folder: Path, also: Iterable[str] = (), **packages: tuple[str, str]) -> Path:
    """Make an environment of links to what torch and numpy need, and packages of the test's own.

    Parameters
    ----------
    also : further distributions, such as scikit-learn
    packages : version and source of a module, by its name
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for one in needed((*NEEDED, *also)).values():
        tops = {path.parts[0] for path in one.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(one.locate_file(top))).resolve())
    for name, (version, source) in packages.items():
        (site / f"{name}.py").write_text(source)
        (site / f"{name}-{version}.dist-info").mkdir()
    return folder


def answering(place: Path, **facts: object) -> Path:
    """Make a program that answers like an interpreter with these facts."""
    import json

    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    place.chmod(0o755)
    return place
