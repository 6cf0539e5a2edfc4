"""Writing files so that a reader, a crash or a second writer never sees half of one."""

from __future__ import annotations

import errno
import io
import json
import os
import stat
import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from perfsweep.checksums import sealed, unsealed
from perfsweep.workloads.errors import RecordError

if TYPE_CHECKING:  # trials use this module too, and need no tables
    import polars as pl


def write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays as `.npz`."""
    temporary = _temporary(file)
    with _whole(file, temporary), temporary.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


MOST_BYTES = 2**30
"""Of a file of plans or records, which is read whole."""


MOST_DIGITS = 19
"""Of an integer with 64 bits."""


@contextmanager
def plain_file(file: Path) -> Iterator[BinaryIO]:
    """Open a plain file to read.

    Raises
    ------
    OSError
        It cannot be opened, or is none: a named pipe would wait for a writer, and a device may have no end.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as content:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, and no plain file", str(file))
        yield content


def read_whole(file: Path) -> bytes:
    """Read a plain file of at most `MOST_BYTES`.

    Raises
    ------
    OSError
        It cannot be read, is no plain file, or is larger.
    """
    with plain_file(file) as content:
        if os.fstat(content.fileno()).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {MOST_BYTES} bytes", str(file))
        return content.read()


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """Read named arrays.

    Raises
    ------
    RecordError
        The file is missing or corrupt.
    """
    try:
        with plain_file(file) as content:
            written = _members(content)
            with np.load(content, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise RecordError(f"{file} cannot be read as arrays: {error}") from error
    except (
        Exception
    ) as error:  # a torn zip raises zipfile.BadZipFile or zlib.error, depending on where it was torn
        raise RecordError(f"{file} is damaged: {error}") from error
    whole = sum(isinstance(array, np.ndarray) for array in found.values())  # of what is none: its bytes
    if not 0 < whole == len(found) == written:
        raise RecordError(f"{file} is damaged: {whole} of {written} arrays are left")
    return found


_END_OF_ZIP = struct.Struct("<4s4H2LH")


def _members(content: BinaryIO) -> int:
    """How many members the end of a zip file states: zipfile passes over what a damaged length hides.

    Raises
    ------
    ValueError
        One is compressed, as none of ours is: a small file could fill the memory.
    """
    content.seek(-_END_OF_ZIP.size, os.SEEK_END)
    stated = _END_OF_ZIP.unpack(content.read())[4]
    with ZipFile(content) as archive:
        if any(member.compress_type != ZIP_STORED for member in archive.infolist()):
            raise ValueError("its arrays are compressed, which perfsweep does not write")
    content.seek(0)
    return stated


def write_parquet(file: Path, table: pl.DataFrame) -> None:
    """Replace a Parquet file in one step; a full disk is an OSError here, and not an error of the format."""
    content = io.BytesIO()
    table.write_parquet(content)
    write_atomically(file, content.getvalue())


def read_json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the numbered JSON objects of a file.

    Raises
    ------
    RecordError
        The file is missing, or a line is no JSON object or not what was written.
    """
    try:
        content = read_whole(file)
    except OSError as error:
        problem = f"{file} cannot be read ({error.strerror}); is this the folder of a sweep?"
        raise RecordError(problem) from error
    for number, line in enumerate(content.splitlines(), 1):
        yield number, parsed(line, f"{file} line {number}")


def json_object(values: dict[str, Any]) -> bytes:
    """Write an object as a file of its own, with its checksum."""
    return json.dumps(sealed(values), indent=1).encode()


def read_json(file: Path) -> dict[str, Any] | None:
    """Read the one JSON object of a file; None where there is no file.

    Raises
    ------
    RecordError
        The file holds no JSON object, or not what was written.
    """
    try:
        content = read_whole(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror}") from error
    return parsed(content, str(file))


def parsed(text: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object that was written with its checksum; `where` names it in what is said of it.

    Raises
    ------
    RecordError
        It is none, or not what was written.
    """
    try:
        values = json.loads(text, parse_int=_integer)
        if not isinstance(values, dict):
            raise RecordError(f"{where} is no JSON object")
        return unsealed(values)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where} is damaged: {error}") from error


def _integer(text: str) -> int:
    """Read an integer that has room in 64 bits, as in tables: arithmetic with more digits is no float's."""
    if len(text.lstrip("-")) > MOST_DIGITS:
        raise ValueError(f"it holds an integer of {len(text)} digits")
    return int(text)


def write_atomically(file: Path, content: bytes, *, sync: bool = True) -> None:
    """Replace a file in one step: readers see the old content or the new, never a part."""
    _written(file, content, sync=sync).replace(file)


@contextmanager
def replaced(file: Path) -> Iterator[Path]:
    """Name a fresh file to write, which replaces this file in one step once it is whole."""
    fresh = _temporary(file)
    try:
        with _whole(file, fresh):
            yield fresh
            with fresh.open("rb") as written:
                os.fsync(written.fileno())
        fresh.replace(file)
    finally:
        fresh.unlink(missing_ok=True)


def write_once(file: Path, content: bytes) -> bool:
    """Create a file in one step unless it exists; return whether this call created it."""
    temporary = _written(file, content, sync=True)
    try:
        os.link(temporary, file)  # unlike rename, link refuses to replace: the first writer wins
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _claim(file) and bool(temporary.replace(file))
    finally:
        temporary.unlink(missing_ok=True)
    return True


def refusal(folder: Path) -> str:
    """Why nothing more can be written in a folder, such as a full disk; empty where something can."""
    try:
        _written(folder / "room", bytes(4096), sync=True).unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


_NO_LINKS = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))
"""What link says on file systems without hard links."""


def _claim(file: Path) -> bool:
    """Take the right to write a file, which is never given back: a writer that dies now leaves none."""
    try:
        file.with_name(f".{file.name}.claim").touch(exist_ok=False)
    except FileExistsError:
        return False
    return not file.exists()


def _written(file: Path, content: bytes, *, sync: bool) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(file)
    with _whole(file, temporary), temporary.open("wb") as out:
        out.write(content)
        out.flush()
        if sync:
            os.fsync(out.fileno())
    return temporary


@contextmanager
def _whole(file: Path, temporary: Path) -> Iterator[None]:
    """Leave nothing half written; what the system refuses names the file, which writing alone does not."""
    try:
        yield
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(file)) from error


def _temporary(file: Path) -> Path:
    return file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
