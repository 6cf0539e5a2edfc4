"""The results of a sweep as values: a short table of its effects, and the settings to use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import (
    EffectResult,
    by_todo,
    counts,
    effect_name,
    summary,
    todo,
)
from perfsweep.pipelines.report import sentences
from perfsweep.pipelines.store.records import Manifest
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import LevelValue

COLUMNS: dict[str, type[pl.DataType]] = {
    "name": pl.String,
    "todo": pl.String,
    "speed": pl.Float64,
    "speed_low": pl.Float64,
    "speed_high": pl.Float64,
    "verdict": pl.String,
    "results": pl.String,
    "memory_mb": pl.Float64,
    "compile_s": pl.Float64,
    "rounds": pl.Int64,
}
"""Each row is one effect; `effects.parquet` has all columns."""


def brief_effects(comparison: Comparison) -> pl.DataFrame:
    """Tabulate the effects by what to do about them: levels to turn on come first, the fastest at the top.

    Speeds are null where the time does not count, because results differ or less work was done.
    """
    return pl.DataFrame([_brief(one) for one in by_todo(comparison.effects)], schema=COLUMNS, orient="row")


def _brief(result: EffectResult) -> tuple[object, ...]:
    speeds = (result.speed, result.speed_low, result.speed_high) if counts(result) else (None, None, None)
    return (
        effect_name(result),
        str(todo(result)),
        *speeds,
        result.word,
        result.parity_text,
        None if result.memory_bytes is None else result.memory_bytes / MB,
        result.compile_s,
        result.rounds,
    )


@dataclass(frozen=True, repr=False)
class Setting:
    """Levels to use, and their speed against the baseline.

    Attributes
    ----------
    levels : level of each toggle that is off its baseline
    speed, low, high : speed against the baseline with its 95 % interval; 2.0 is twice as fast
    results : how the results compare with the baseline's, such as ``identical``
    command : runs the workload with these levels
    text : all of this in one line
    """

    levels: Mapping[str, LevelValue]
    speed: float
    low: float | None
    high: float | None
    results: str
    command: str
    text: str

    def __repr__(self) -> str:
        return self.text


def best(comparison: Comparison, manifest: Manifest) -> Setting | None:
    """The fastest arm whose levels may be turned on; None where nothing is faster."""
    return comparison.fastest and _setting(comparison, manifest, comparison.fastest)


def recommended(comparison: Comparison, manifest: Manifest) -> Setting | None:
    """The winners together, as far as each adds a measured gain, or `best`: what `Use it` runs."""
    found = sentences.recommended(comparison)
    return found and _setting(comparison, manifest, found)


def _setting(comparison: Comparison, manifest: Manifest, result: EffectResult) -> Setting:
    texts = sentences.level_texts(result)
    planned = {
        (name, str(arm.levels[name])): arm.levels[name]
        for arm in manifest.arms
        for name in texts
        if name in arm.levels
    }
    levels = {name: planned.get((name, text), text) for name, text in texts.items()}
    named = ", ".join(f"{name}={text}" for name, text in texts.items()) or effect_name(result)
    return Setting(
        levels,
        result.speed or 1.0,
        result.speed_low,
        result.speed_high,
        result.parity_text,
        sentences.use(comparison, result),
        f"{named}: {summary(result)}",
    )
