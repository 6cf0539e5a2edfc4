"""Rows of numbers put straight into the file of an offline run.

W&B's client takes some 240 us of processor time for each row, two of its processes together, and writes three
records for it; at 10 ms an iteration that is most of what tracking may cost. It still writes everything else
of a run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pipelines.publish.history import HistoryRow
from pipelines.publish.wandb_file import framed, read_records
from pipelines.store.files import write_atomically

_BEFORE_ROWS = frozenset({"header", "run", "telemetry", "config", "metric"})


def insert_rows(file: Path, rows: Iterable[HistoryRow]) -> None:
    """Add rows to the history of a finished offline run, before what the run says at its end.

    As W&B does, rows are numbered, timed from the first one, and the last value of each key becomes part of
    the summary. A row without `_timestamp` (seconds since the epoch) has that of the one before it.
    """
    written = list(read_records(file))
    place = next(
        (at for at, record in enumerate(written) if record.WhichOneof("record_type") not in _BEFORE_ROWS),
        len(written),
    )
    numbered = _renumbered([*written[:place], *_history(rows), *written[place:]])
    write_atomically(file, framed(numbered))


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
        record.num = number
        yield record.SerializeToString()
