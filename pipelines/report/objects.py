"""What commands print for programs: dataclasses whose fields say what they hold, as JSON and CSV.

A field is declared once, by `member`, and rows of tables by their columns; the object that is printed and
docs/json.md are both read from that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Generic

import click

from perfsweep.pipelines.analysis.columns import Column, T, parquet_table, row_values
from perfsweep.workloads.errors import harmless


@dataclass(frozen=True)
class Rows(Generic[T]):
    """Rows of a table, which become a list of objects: a field for each column that is written down."""

    columns: tuple[Column[T], ...]
    rows: Sequence[T]


def member(doc: str, *, columns: tuple[Column, ...] = (), **rest: Any) -> Any:
    """Declare a field of an object; of `Rows`, with the columns that they have."""
    return field(metadata={"doc": doc, "columns": columns}, **rest)


def as_json(value: Any) -> Any:
    """Turn a value into what JSON knows; numbers that JSON has no word for, NaN and infinity, become null."""
    if isinstance(value, Rows):
        return [as_json(row_values(value.columns, row)) for row in value.rows]
    if is_dataclass(value):
        return {one.name: as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.value if isinstance(value, Enum) else str(value) if isinstance(value, Path) else value


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(as_json(value), indent=2, allow_nan=False))


def print_csv(schema: str, table: Rows) -> None:
    """Print rows as CSV on stdout, under a line of names; the first column says which schema they have."""
    import polars as pl  # takes a second, and JSON needs none

    numbers = pl.col(pl.Float64)
    finite = pl.when(numbers.is_finite()).then(numbers).otherwise(None)
    written = parquet_table(table.columns, table.rows).with_columns(finite)
    click.echo(harmless(written.select(pl.lit(schema).alias("schema"), pl.all()).write_csv()), nl=False)
