"""Unpack a sweep's copy of our code, which jobs import, on the disk of the node that imports it.

It imports the standard library only: jobs import it first, from the archive itself.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import tempfile
import zlib
from pathlib import Path
from zipfile import BadZipFile, ZipFile

CANNOT_UNPACK = 66
"""Exit status of a process whose code cannot be read (EX_NOINPUT)."""


def unpacked(archive: Path) -> Path:
    """Unpack an archive on this node, unless that was done before; returns the folder.

    Shared file systems are slow at opening files; the node's own disk is not. Compilers, tracebacks and code
    that reads its own source need files.

    Raises
    ------
    SystemExit
        It cannot be unpacked; the reason has been printed.
    """
    place = Path("a folder of temporary files")
    try:
        place = Path(tempfile.gettempdir(), f"perfsweep-code-{os.getuid()}", archive.resolve().parent.name)
        _make_own(place.parent)
        with ZipFile(archive) as packed:
            changed = [one for one in packed.infolist() if _checksum(place / one.filename) != one.CRC]
            for one in changed:
                _put(place / one.filename, packed.read(one))
    except (OSError, BadZipFile) as error:
        why = getattr(error, "strerror", None) or error
        print(f"{archive} cannot be unpacked in {place}: {why}. Free that folder, or choose one by TMPDIR.")
        sys.exit(CANNOT_UNPACK)
    if changed and sys.dont_write_bytecode:  # else every process would compile all of it
        import compileall

        compileall.compile_dir(place, quiet=2)
    return place


def _make_own(folder: Path) -> None:
    """Make a folder that no other user can write, since this process loads code from it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "another user can write there")


def _checksum(file: Path) -> int | None:
    try:
        return zlib.crc32(file.read_bytes())
    except FileNotFoundError:
        return None


def _put(file: Path, content: bytes) -> None:
    """Write a file atomically: other jobs may unpack and import the same file at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        Path(fresh).replace(file)
    finally:
        Path(fresh).unlink(missing_ok=True)
