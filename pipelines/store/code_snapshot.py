"""The code a sweep runs: a copy of our packages, and of a user's sources, under digests of their content.

Jobs that wait in a queue for hours import what was submitted, whatever the checkout has become; a copy that
jobs may still import is never touched.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from slurm.element import digest_of
from workloads.snapshot import VARIABLE, Snapshot

PACKAGES = ("conf", "perfsweep", "pipelines", "slurm", "workloads")
"""All of perfsweep; a user's script may import the door, so jobs need it too."""

_HALF_COMPILED = shutil.ignore_patterns("*.pyc.*")
"""Names under which Python writes what it compiles before it renames it."""


def take(code_dir: Path) -> Path:
    """Copy the packages as they are now, unless the copy is there; return its folder."""
    place = code_dir / digest_of(_sources())
    if not place.is_dir():
        fresh = code_dir / f".{place.name}.{os.getpid()}"
        for source in _sources():
            # With what is compiled already (valid, as copies keep their times): no job compiles it again.
            shutil.copytree(source, fresh / source.name, ignore=_HALF_COMPILED)
        try:
            fresh.rename(place)
        except OSError:  # another command was first: a folder that is not empty is not replaced
            shutil.rmtree(fresh)
    return place


def digest(place: Path) -> str | None:
    """The digest that jobs hold a copy of the packages against; None of what is no copy."""
    return place.name if _NAME.match(place.name) else None


_NAME = re.compile(r"^[0-9a-f]{12}$")


def latest(code_dir: Path) -> Path:
    """The copy of the packages that was taken last; `code_dir` itself where there is none."""
    copies = [place for place in code_dir.iterdir() if not place.name.startswith((_OUTSIDE, "."))]
    return max(copies, key=lambda path: path.stat().st_mtime, default=code_dir)


_OUTSIDE = "sources-"


def take_sources(code_dir: Path, code: str, files: Iterable[Path]) -> None:
    """Copy a workload's files from outside, whose digest `code` has in it, unless the copies are there."""
    place = sources_place(code_dir, code)
    wanted = {file.absolute() for file in files}
    if not wanted or set(Snapshot(place).copies) == wanted:
        return
    fresh = Snapshot(place.with_name(f".{place.name}.{os.getpid()}"))
    for file in wanted:
        copy = fresh.copy_of(file)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    shutil.rmtree(place, ignore_errors=True)  # the same files once lay elsewhere
    fresh.root.rename(place)


def sources_env(code_dir: Path, code: str) -> dict[str, str]:
    """The variable by which trials find the copies of a workload's files; empty where there are none."""
    place = sources_place(code_dir, code)
    return {VARIABLE: str(place.absolute())} if place.is_dir() else {}


def sources_place(code_dir: Path, code: str) -> Path:
    """The folder of the copies that a digest names."""
    return code_dir / f"{_OUTSIDE}{code[:16]}"


def _sources() -> list[Path]:
    specs = [find_spec(name) for name in PACKAGES]
    return [Path(spec.origin).parent for spec in specs if spec and spec.origin]
