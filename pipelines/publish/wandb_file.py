"""The format of the `.wandb` file of an offline run: reading it, also where its writer was killed, and
writing it.

The file is a log of protobuf records in the block format of LevelDB: a header of 7 bytes, then blocks of 32
KiB. A record that does not fit the rest of a block goes on in the next. Everything before the first damaged
byte is valid.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workloads.errors import RecordError

_FILE_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_CHUNK_HEADER = struct.Struct("<IHB")  # checksum, length, kind
_BLOCK = 32768
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


@dataclass(frozen=True)
class RunFile:
    """What an offline run's file holds.

    Attributes
    ----------
    config : values by dotted name, as the W&B interface shows nested ones (`toggles.amp`)
    history : rows in the order they were logged, with W&B's own `_step`, `_runtime` and `_timestamp`
    step_metrics : the x axis declared for each metric or pattern of metrics
    artifacts : for each artifact by name, the size in bytes of each file in it
    exit_code : None when the run was not finished
    """

    path: Path
    run_id: str = ""
    project: str = ""
    entity: str = ""
    group: str = ""
    name: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    step_metrics: dict[str, str] = field(default_factory=dict)
    artifacts: dict[str, dict[str, int]] = field(default_factory=dict)
    exit_code: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the file reaches to the end of the run; the exit record is written last."""
        return self.exit_code is not None


@dataclass(frozen=True)
class Extent:
    """How far an offline run's file reaches: rows of its history, and whether it reaches to the end of the
    run."""

    rows: int
    complete: bool


def extent(path: Path) -> Extent:
    """Count what `read_run` would read, without decoding values, which takes most of its time.

    Raises
    ------
    RecordError
        As `read_run`.
    """
    kinds = Counter(record.WhichOneof("record_type") for record in read_records(path))
    return Extent(kinds["history"], kinds["exit"] > 0)


def read_run(path: Path) -> RunFile:
    """Read a `.wandb` file, or the one in an offline run's folder.

    A torn tail is no error: what was written before it is returned, and `complete` is False.

    Raises
    ------
    RecordError
        The file is missing or is not of W&B.
    """
    found = RunFile(_file_in(path))
    for record in read_records(path):
        found = _with(found, record)
    return found


def read_records(path: Path) -> Iterator[Any]:
    """The whole records of a `.wandb` file, as W&B's protobuf messages, up to the first that is damaged or
    cut off.

    Raises
    ------
    RecordError
        As `read_run`.
    """
    return _records(payloads(_content(path)))


def _content(path: Path) -> bytes:
    file = _file_in(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise RecordError(
            f"{file} cannot be read ({error.strerror}); name a .wandb file or its folder"
        ) from error
    if not _FILE_HEADER.startswith(data[: len(_FILE_HEADER)]):
        raise RecordError(
            f"{file} is no offline run of W&B: it does not start with {_FILE_HEADER[:4].decode()}"
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
            or not _sound(checksum, kind, data[start:end])
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


def _sound(checksum: int, kind: int, chunk: bytes) -> bool:
    return _checksum(kind, chunk) == checksum


def _checksum(kind: int, chunk: bytes) -> int:
    return zlib.crc32(chunk, zlib.crc32(bytes([kind])))


def _file_in(path: Path) -> Path:
    if path.is_dir():
        return next(iter(sorted(path.glob("run-*.wandb"))), path / "run-*.wandb")
    return path


def _records(found: Iterable[bytes]) -> Iterator[Any]:
    # Importing W&B's message classes imports all of wandb, a second that only readers of such files should
    # pay.
    from google.protobuf.message import DecodeError
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    for payload in found:
        try:
            yield Record.FromString(payload)
        except DecodeError:
            return


def _with(run: RunFile, record: Any) -> RunFile:
    """What is known of a run after one more record."""
    match record.WhichOneof("record_type"):
        case "run":
            return _described(run, record.run)
        case "config":
            run.config.update(_flat(_items(record.config.update)))
        case "history":
            run.history.append(_items(record.history.item))
        case "summary":
            run.summary.update(_flat(_items(record.summary.update)))
            for item in record.summary.remove:
                run.summary.pop(_key(item), None)
        case "metric":
            run.step_metrics[record.metric.glob_name or record.metric.name] = record.metric.step_metric
        case "artifact":
            run.artifacts[record.artifact.name] = {
                file.path: file.size for file in record.artifact.manifest.contents
            }
        case "exit":
            return replace(run, exit_code=record.exit.exit_code)
    return run


def _described(run: RunFile, said: Any) -> RunFile:
    return replace(
        run,
        run_id=said.run_id,
        project=said.project,
        entity=said.entity,
        group=said.run_group,
        name=said.display_name,
        job_type=said.job_type,
        tags=tuple(said.tags),
        config={**run.config, **_flat(_items(said.config.update))},
    )


def _items(items: Iterable[Any]) -> dict[str, Any]:
    return {_key(item): _value(item) for item in items}


def _key(item: Any) -> str:
    return ".".join(item.nested_key) or item.key


def _value(item: Any) -> Any:
    """The value of an item, written as JSON (NaN and Infinity as bare tokens) or as one of the typed
    fields."""
    if item.value_json:
        return json.loads(item.value_json)
    kind = item.WhichOneof("value") if "value" in item.DESCRIPTOR.oneofs_by_name else None
    if kind in (None, "none"):
        return None
    return json.loads(item.json) if kind == "json" else getattr(item, kind)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted names, without what W&B keeps there about itself."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return {name: value for name, value in flat.items() if not name.startswith("_wandb.")}
