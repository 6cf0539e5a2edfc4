"""The code a sweep runs: a copy of perfsweep, and of a user's sources, under digests of their content.

Jobs that wait in a queue for hours import what was submitted, whatever the checkout has become; a copy that
jobs may still import is never touched.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from perfsweep.pipelines.store.files import write_atomically
from perfsweep.slurm import element
from perfsweep.workloads.imports import OURS, PACKAGE
from perfsweep.workloads.snapshot import VARIABLE, Snapshot

ARCHIVE = "perfsweep.zip"
"""All our code, which Python imports: each node unpacks it once (`perfsweep.unpacked`)."""


def take(code_dir: Path, shared: Path | None = None) -> Path:
    """Copy perfsweep as it is now, unless the copy is there and whole; return its archive.

    The archive lies in a folder named after its digest, and with it the file that a job of Slurm starts by.
    With `shared`, a folder for several sweeps, that folder lies there, and a link in `code_dir` leads to it.
    """
    package = OURS / PACKAGE
    content = _archived(package)
    place = code_dir / element.digest_of(content)
    copy = (shared or code_dir) / place.name
    for name, wanted in ((ARCHIVE, content), (element.FILE, (package / "slurm" / element.FILE).read_bytes())):
        if not (copy / name).is_file() or (copy / name).read_bytes() != wanted:
            copy.mkdir(parents=True, exist_ok=True)
            write_atomically(copy / name, wanted)
    if shared and not place.is_dir():
        (shared / ".gitignore").write_text("*\n")  # no commit of a checkout has these files
        _link(place, copy)
    return place / ARCHIVE


def _archived(package: Path) -> bytes:
    """Pack the sources, below links too, as in a checkout: the same files make the same bytes."""
    files = {
        file.relative_to(package.parent): file
        for folder, _, names in os.walk(package, followlinks=True)
        for name in names
        if (file := Path(folder, name)).is_file() and file.parent.name != "__pycache__"
    }
    packed = io.BytesIO()
    with ZipFile(packed, "w") as archive:
        for name in sorted(files):
            archive.writestr(ZipInfo(name.as_posix()), files[name].read_bytes())
    return packed.getvalue()


def _link(place: Path, copy: Path) -> None:
    """Lead from a sweep to its copy, wherever both are moved to; a link that leads nowhere is replaced."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(os.path.relpath(copy, place.parent))
    fresh.replace(place)


def digest(archive: Path) -> str | None:
    """The digest that jobs hold an archive against; None of what is no copy."""
    return archive.parent.name if _NAME.match(archive.parent.name) else None


_NAME = re.compile(r"^[0-9a-f]{12}$")


def latest(code_dir: Path) -> Path:
    """The archive that was taken last; one that is not there where none was."""
    copies = [place for place in code_dir.iterdir() if (place / ARCHIVE).is_file()]
    return max(copies, key=lambda path: path.lstat().st_mtime, default=code_dir) / ARCHIVE


_OUTSIDE = "sources-"


def take_sources(code_dir: Path, code: str, files: Iterable[Path]) -> None:
    """Copy a workload's files from outside, whose digest `code` has in it, unless the copies are there."""
    place = sources_place(code_dir, code)
    wanted = {file.absolute() for file in files}
    if not wanted or (place.is_dir() and set(Snapshot(place).copies) == wanted):
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


_LIBRARIES = "libraries-"
_CARRIED = {"greenlet": True, "pynvml": False}
"""Libraries that a trial needs next to torch and numpy, and whether they are compiled for one Python."""


def take_libraries(code_dir: Path) -> None:
    """Copy the libraries that trials in other environments are given, unless the copies are there."""
    for name, compiled in _CARRIED.items():
        spec = find_spec(name)
        abi = sysconfig.get_config_var("SOABI") if compiled else _ANY
        place = code_dir / f"{_LIBRARIES}{name}-{abi}"
        if spec is None or spec.origin is None or place.is_dir():
            continue
        fresh = code_dir / f".{place.name}.{os.getpid()}"
        fresh.mkdir(parents=True)
        origin = Path(spec.origin)
        if spec.submodule_search_locations:
            shutil.copytree(origin.parent, fresh / name, ignore=_NOT_CARRIED)
        else:
            shutil.copy2(origin, fresh)
        try:
            fresh.rename(place)
        except OSError:  # another command was first: a folder that is not empty is not replaced
            shutil.rmtree(fresh)


def libraries(code_dir: Path, abi: str) -> list[Path]:
    """List the folders of `take_libraries` that a Python of this kind can import from."""
    named = (
        code_dir / f"{_LIBRARIES}{name}-{abi if compiled else _ANY}" for name, compiled in _CARRIED.items()
    )
    return [place.absolute() for place in named if place.is_dir()]


_ANY = "any"
_NOT_CARRIED = shutil.ignore_patterns("*.pyc.*", "tests", "platform", "*.cpp", "*.hpp", "*.h")
