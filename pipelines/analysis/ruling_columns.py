"""The columns of the table of claims with their rulings, each declared once: for Parquet and JSON."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from perfsweep.pipelines.analysis.columns import Column, ValueType, file_column, parquet_table
from perfsweep.pipelines.analysis.rulings import RuledClaim
from perfsweep.pipelines.store.records import Manifest

RULINGS: tuple[Column[RuledClaim], ...] = (
    file_column("source", lambda one: one.claim.source, doc="who makes the claim"),
    file_column("section", lambda one: one.claim.section, doc="where in the source"),
    file_column("claim", lambda one: one.claim.text, doc="what is claimed"),
    file_column("subject", lambda one: one.subject, doc="the level or arm that it is about"),
    file_column("design", lambda one: one.design, doc="design of the effect that rules on it, or `arm`"),
    file_column("ruling", lambda one: one.ruling.value, doc="what the sweep says of the claim"),
    file_column("reason", lambda one: one.reason, doc="why there is none, or how far it goes; may be empty"),
    file_column("ratio", lambda one: one.ratio, float, "of time or peak memory, arm to base"),
    file_column("low", lambda one: one.low, float, "lower end of the interval that the ruling rests on"),
    file_column("high", lambda one: one.high, float, "upper end"),
    file_column("figure", lambda one: one.figure, doc="`speed`, `memory`, or the counter that it rests on"),
    file_column("value", lambda one: one.value, float, "of that counter"),
)
"""Of one ruling each row."""

SHARED = ("workload", "sweep", "machine")
"""Columns of the file that are the same in all rows."""

SCHEMA: dict[str, ValueType] = {**dict.fromkeys(SHARED, str), **{one.key: one.kind for one in RULINGS}}
"""Of the file."""


def ruling_table(rulings: Sequence[RuledClaim], manifest: Manifest, machine: str) -> pl.DataFrame:
    """Tabulate rulings, a row each, with the evidence they rest on."""
    shared = zip(SHARED, (manifest.sweep.workload, manifest.sweep.name, machine), strict=True)
    named = [pl.lit(value, pl.String).alias(name) for name, value in shared]
    return parquet_table(RULINGS, rulings).with_columns(named).select(list(SCHEMA))
