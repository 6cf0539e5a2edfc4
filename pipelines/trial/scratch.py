"""The scratch folder of a trial: on the node's own disk where its job has one, else next to its record."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def make(folder: Path) -> Path:
    """Make the scratch folder of the trial in `folder`, in any of its processes, on any of its nodes.

    If it is on a node's own disk, `folder` has a link to it. The batch script says where that disk is.
    """
    place = folder / "scratch"
    if root := os.environ.get("PERFSWEEP_SCRATCH"):
        folder = folder.absolute()
        with suppress(FileExistsError):  # another rank was first
            place.symlink_to(Path(root, f"{folder.parent.name}-{folder.name}"))
    place.resolve().mkdir(parents=True, exist_ok=True)
    return place


def remove(folder: Path) -> None:
    """Remove it with what it holds."""
    place = folder / "scratch"
    shutil.rmtree(place.resolve(), ignore_errors=True)
    if place.is_symlink():
        place.unlink(missing_ok=True)
