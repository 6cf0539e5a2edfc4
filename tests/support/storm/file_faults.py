"""Faults of the disk: full, not writable, files that end in the middle."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from storm.fault import NoTarget, fault

if TYPE_CHECKING:
    from storm.world import World

BLOCK = bytes(1 << 16)

CUT = (
    *(
        "trials/*/*/record.json",
        "trials/*/*/iterations.npz",
        "trials/*/*/evidence.npz",
        "trials/*/*/spec.json",
    ),
    *("trials/*/*/status.json", "packs/*/events.jsonl", "packs/*/attempts/*.json", "tables/*.parquet"),
    *("manifest.jsonl", "sweep.yaml", "submissions.jsonl", "report.html", "wandb/sweep.id", "wandb/.locks/*"),
    *("wandb/*/*.wandb", "wandb/*.json", "submissions/*/*.json"),
)
"""Files of a sweep that a crash of the machine may have left short; `code/` is what jobs run, and they refuse
what is not as it was submitted."""


@fault("the disk is full", (1.0, 10.0))
def fill_disk(world: World, rng: Random) -> Iterator[str]:
    """Of the small disk that sweeps lie on alone."""
    if not world.small_disk or not world.folder.exists():
        raise NoTarget
    filler = world.runs / ".filler"
    try:
        written = _filled(filler)
        yield f"{written >> 20} MiB more"
    finally:
        filler.unlink(missing_ok=True)


def _filled(filler: Path) -> int:
    with filler.open("wb", buffering=0) as out:
        try:
            while out.write(BLOCK):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        return out.tell()


@fault("a folder of the sweep cannot be written, or not even read", (1.0, 8.0))
def forbid_folder(world: World, rng: Random) -> Iterator[str]:
    """As after a change of group, or with a snapshot mounted in its place."""
    root = world.folder
    found = sorted(path for path in (root, *root.glob("*"), *root.glob("*/*")) if path.is_dir())
    chosen = [path for path in found if path.name != "code" and "code" not in path.parts]
    if not chosen:
        raise NoTarget
    folder = chosen[rng.randrange(len(chosen))]
    mode = rng.choice((0o555, 0o555, 0o000))
    before = folder.stat().st_mode & 0o777
    if before in (0o555, 0o000):
        raise NoTarget  # the same fault has it already, and knows how it was
    try:
        folder.chmod(mode)
        yield f"{folder.relative_to(world.runs)} to {mode:03o}"
    finally:
        with suppress(FileNotFoundError):
            folder.chmod(before)


@fault("a file ends at a random byte", weight=4)
def cut_file(world: World, rng: Random) -> Iterator[str]:
    """As a disk leaves it that had acknowledged what it had not written."""
    pattern = CUT[rng.randrange(len(CUT))]
    found = [path for path in sorted(world.folder.glob(pattern)) if path.is_file() and path.stat().st_size]
    if not found:
        raise NoTarget
    file = found[rng.randrange(len(found))]
    size = file.stat().st_size
    left = rng.randrange(size)
    try:
        os.truncate(file, left)
    except OSError:
        raise NoTarget from None
    yield f"{file.relative_to(world.runs)} at {left} of {size}"
