"""The `.wandb` file of an offline run: reading it, even where its writer was killed, and adding numbers.

The file is a log of protobuf records in the block format of LevelDB: a header of 7 bytes, then blocks of 32
KiB. A record that does not fit the rest of a block goes on in the next. Everything before the first damaged
byte is valid.

W&B's client takes some 240 us of processor time for each row, two of its processes together, and writes three
records for it; at 10 ms an iteration that is most of what tracking may cost. It still writes everything else
of a run.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from perfsweep.pipelines.publish.history_rows import HistoryRow
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.workloads.errors import RecordError

_FILE_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_CHUNK_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

_BEFORE_ROWS = frozenset({"header", "run", "telemetry", "config", "metric", None})
"""Kinds of records that come before rows; None is a kind that this wandb writes and we do not know."""


class UnknownFraming(RecordError):
    """A file in a framing that we do not write: the W&B client that wrote it must add to it."""


@dataclass(frozen=True)
class Extent:
    """How far an offline run's file reaches: rows of history, and whether it reaches the run's end."""

    rows: int
    complete: bool


def extent(path: Path) -> Extent:
    """Count rows without decoding values, which would take most of the time.

    Raises
    ------
    RecordError
        The file is missing or is not of W&B.
    """
    kinds = Counter(record.WhichOneof("record_type") for record in read_records(path))
    return Extent(kinds["history"], kinds["exit"] > 0)


def read_records(path: Path) -> Iterator[Any]:
    """The whole records of a `.wandb` file, as W&B's protobuf messages, up to the first damaged one.

    Raises
    ------
    RecordError
        As `extent`.
    """
    records = map(_understood, payloads(_content(path)))
    return takewhile(lambda record: not isinstance(record, bytes), records)


def _content(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} cannot be read ({error.strerror}); publish again") from error
    if not _FILE_HEADER.startswith(data[: len(_FILE_HEADER)]):
        raise RecordError(
            f"{path} is no offline run of W&B: it does not start with {_FILE_HEADER[:4].decode()}"
        )
    return data


def payloads(data: bytes) -> Iterator[bytes]:
    """The whole records of a file's content, up to the first that is damaged or cut off."""
    parts: list[bytes] = []
    position = len(_FILE_HEADER)
    while position + _CHUNK_HEADER.size <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _CHUNK_HEADER.size:
            position += left
            continue
        checksum, length, kind = _CHUNK_HEADER.unpack_from(data, position)
        if kind == length == 0:
            position += left  # the writer filled the rest of the block with zeros
            continue
        start, end = position + _CHUNK_HEADER.size, position + _CHUNK_HEADER.size + length
        whole = end <= len(data) and _CHUNK_HEADER.size + length <= left
        starts = kind in (_FULL, _FIRST)
        if (
            not whole
            or not _FULL <= kind <= _LAST
            or starts == bool(parts)
            or _checksum(kind, data[start:end]) != checksum
        ):
            return
        position = end
        parts.append(data[start:end])
        if kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = []


def framed(records: Iterable[bytes]) -> bytes:
    """The content of a file with these records: the inverse of `payloads`."""
    content = bytearray(_FILE_HEADER)
    for record in records:
        start, first, last = 0, True, False
        while not last:
            left = _BLOCK - len(content) % _BLOCK
            if left < _CHUNK_HEADER.size:
                content += bytes(left)
                continue
            chunk = record[start : start + left - _CHUNK_HEADER.size]  # empty where a header alone fits
            start += len(chunk)
            last = start == len(record)
            kind = (_FULL if last else _FIRST) if first else (_LAST if last else _MIDDLE)
            content += _CHUNK_HEADER.pack(_checksum(kind, chunk), len(chunk), kind) + chunk
            first = False
    return bytes(content)


def _checksum(kind: int, chunk: bytes) -> int:
    return zlib.crc32(chunk, zlib.crc32(bytes([kind])))


def insert_rows(
    file: Path, rows: Iterable[HistoryRow], moved: Callable[[str], str] = lambda path: path
) -> None:
    """Add rows to the history of a finished offline run, before what the run says at its end.

    As W&B does, rows are numbered, timed from the first one, and the last value of each key becomes part of
    the summary. A row without `_timestamp` (seconds since the epoch) has that of the one before it. Records
    that cannot be decoded, and fields that are not known, stay as they are.

    Parameters
    ----------
    moved : where a file of an artifact lies from now on

    Raises
    ------
    UnknownFraming
        The file holds bytes that would be lost.
    """
    data = _content(file)
    content = list(payloads(data))
    if framed(content) != data:
        raise UnknownFraming(f"{file.name} holds bytes that perfsweep does not understand")
    written = [_understood(payload) for payload in content]
    for record in written:
        _move_files(record, moved)
    place = next((at for at, record in enumerate(written) if _kind(record) not in _BEFORE_ROWS), len(written))
    numbered = _renumbered([*written[:place], *_history(rows), *written[place:]])
    write_atomically(file, framed(numbered))


def _understood(payload: bytes) -> Any:
    """A record as W&B's message; its bytes where they are none."""
    # W&B's message classes import all of wandb, a second that only readers of such files should pay.
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    try:
        return Record.FromString(payload)
    except DecodeError:
        return payload


def _kind(record: Any) -> str | None:
    return None if isinstance(record, bytes) else record.WhichOneof("record_type")


def _bytes(record: Any) -> bytes:
    return record if isinstance(record, bytes) else record.SerializeToString()


def _move_files(record: Any, moved: Callable[[str], str]) -> None:
    if _kind(record) != "artifact":
        return
    for entry in record.artifact.manifest.contents:
        if entry.local_path:
            entry.local_path = moved(entry.local_path)


def _history(rows: Iterable[HistoryRow]) -> Iterator[Any]:
    # Importing W&B's message classes imports all of wandb.
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    last: HistoryRow = {}
    began: float | None = None
    for step, row in enumerate(rows):
        now = row.get("_timestamp", last.get("_timestamp"))
        now = time.time() if now is None else now
        began = now if began is None else began
        whole = row | {"_timestamp": now, "_runtime": now - began, "_step": step}
        last |= whole
        record = Record()
        record.history.step.num = step
        _fill(record.history.item, whole)
        yield record
    if last:
        record = Record()
        _fill(record.summary.update, last)
        yield record


def _fill(items: Any, row: HistoryRow) -> None:
    for key, value in row.items():
        # A name in `key` would be split at dots by some readers.
        items.add(nested_key=(key,), value_json=json.dumps(value))


def _renumbered(records: Iterable[Any]) -> Iterator[bytes]:
    """Records count from one through the whole file."""
    for number, record in enumerate(records, start=1):
        if not isinstance(record, bytes):
            record.num = number
        yield _bytes(record)
