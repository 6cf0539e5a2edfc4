"""The comparison of a sweep as one W&B run: effects as numbers, table and picture, and the report as it is.

Made from the files that compare and report have written, so that it can be published from anywhere. The table
has the columns of `effects.parquet`, whatever they are; where that has ratios of times, it has speeds.
`standings` read what the tables say of each arm, for the runs of arms.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from perfsweep.pipelines.publish.content import RunContent, Segment, Standing
from perfsweep.pipelines.publish.history_rows import plain
from perfsweep.pipelines.statistics.verdicts import Verdict, verdict_word
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line
from perfsweep.pipelines.units import MB
from perfsweep.workloads.errors import RecordError

NO_BEST = "none is faster"
"""Shown as the best level where no level is faster."""


def compare_content(
    folder: SweepFolder, manifest: Manifest, identity: str, series: tuple[tuple[str, Path], ...] = ()
) -> RunContent:
    """Make the run that shows a comparison; with it goes the full series of all arms.

    Raises
    ------
    RecordError
        The table of effects is damaged.
    """
    file = folder.tables_dir / "effects.parquet"
    try:
        content = file.read_bytes()
        effects = [_effect(row) for row in table_rows(folder, "effects")]
        summary = _summary(effects, manifest.sweep.columns)
    except (OSError, KeyError) as error:
        raise damaged(file, folder, error) from error
    report = folder.report_file if folder.report_file.exists() else None
    digest = hashlib.sha256(content + (report.read_bytes() if report else b""))
    for name, one in series:
        digest.update(name.encode() + hashlib.sha256(one.read_bytes()).digest())
    return RunContent.of(
        manifest.sweep,
        f"{identity}-compare",
        f"compare-{manifest.sweep.name}",
        (),
        {},
        arm="",
        label="comparison",
        pack="",
        job_type="compare",
        segments=(Segment(digest.hexdigest()[:16], 1, partial(_media, effects, report), numbers=False),),
        summary=summary,
        files=(("effects.parquet", file), *((("report.html", report),) if report else ())),
        bundled=series,
    )


def _effect(row: dict[str, Any]) -> dict[str, Any]:
    """An effect with speeds in place of ratios of times, and its verdict in words."""
    effect = {
        SPEED.get(name, name): inverse(value) if name in SPEED else value for name, value in row.items()
    }
    return {**effect, "verdict": verdict_of(row)}


def _name(effect: dict[str, Any]) -> str:
    return f"{effect['toggle']}={effect['level']}" if effect["level"] else effect["toggle"]


def _names(effects: list[dict[str, Any]]) -> list[str]:
    """Each with its design where there are several: one level can be compared by each of them."""
    several = len({effect["design"] for effect in effects}) > 1
    designs = (f" ({effect['design'].replace('_', ' ')})" if several else "" for effect in effects)
    return [_name(effect) + design for effect, design in zip(effects, designs, strict=True)]


def _summary(effects: list[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Each effect's speed and further `columns` with bounds, and the best faster one as charts sort it."""
    summary: dict[str, Any] = {}
    for effect in effects:
        prefix = f"effect/{plain(effect['design'])}/{plain(_name(effect))}"
        summary |= {f"{prefix}/{name}": effect[name] for name in SPEED.values() if effect[name]}
        summary[f"{prefix}/verdict"] = effect["verdict"]
        further = [f"{key}_{name}" for key in columns for name in ("value", "ratio", "low", "high")]
        summary |= {f"{prefix}/{name}": effect[name] for name in further if effect.get(name) is not None}
    faster = [effect for effect in effects if effect["verdict"] == "faster" and effect["speed"]]
    best = max(faster, key=lambda effect: effect["speed"], default=None)
    speed = {name: best[name] for name in SPEED.values()} if best else {}
    name = _name(best) if best else NO_BEST
    return {**summary, **speed, "bench/best": name, "bench_best": name}


def _media(effects: list[dict[str, Any]], report: Path | None) -> Iterator[dict[str, Any]]:
    """The one row of the run. Imports wandb."""
    import wandb

    table = wandb.Table(
        columns=list(effects[0]) if effects else [],
        data=[[_cell(value) for value in effect.values()] for effect in effects],
    )
    row: dict[str, Any] = {"effects": table}
    if timed := [effect for effect in effects if all(effect[name] for name in SPEED.values())]:
        row["speeds"] = wandb.Plotly(speed_bars(timed))
    if report is not None:
        row["report"] = wandb.Html(report.read_text(), inject=False)
    yield row


def speed_bars(effects: list[dict[str, Any]]) -> Any:
    """A figure of bars with 95 % intervals, largest speed on top; changed results are red."""
    import plotly.graph_objects as go

    rows = sorted(effects, key=lambda effect: effect["speed"])
    bars = go.Bar(
        x=[row["speed"] for row in rows],
        y=_names(rows),
        orientation="h",
        marker={"color": ["#c0392b" if row["verdict"] == "different" else "#2a78d6" for row in rows]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [row["speed_high"] - row["speed"] for row in rows],
            "arrayminus": [row["speed"] - row["speed_low"] for row in rows],
        },
    )
    figure = go.Figure(bars)
    figure.add_vline(x=1, line_width=1, line_color="#888888")
    title = "speed against the baseline (95 % interval)"
    figure.update_layout(xaxis_title=title, height=120 + 34 * len(rows))
    return figure


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


SPEED = {"ratio": "speed", "high": "speed_low", "low": "speed_high"}
"""Columns of ratios of times, and what their inverses are called: the bounds change places."""

NOT_RANKED = frozenset({Verdict.DIFFERENT.value, Verdict.FEWER_UNITS.value})
"""Verdicts on arms that compute something else or less: their time is no answer."""

_NS_PER_MS = 1e6


def standings(folder: SweepFolder, manifest: Manifest) -> dict[str, Standing]:
    """Read what the last comparison says of each arm (id); nothing before the first one.

    Raises
    ------
    RecordError
        A table is damaged.
    """
    if not (folder.tables_dir / "arms.parquet").exists():
        return {}
    effects = {str(row.get("id")): row for row in table_rows(folder, "effects")}
    arms = (row for row in table_rows(folder, "arms") if row.get("paired_ns"))
    return {row["arm"]: _standing(row, list(_effects_of(manifest, row["arm"], effects))) for row in arms}


def table_rows(folder: SweepFolder, name: str) -> list[dict[str, Any]]:
    """Read a table of the comparison.

    Raises
    ------
    RecordError
        It is missing or damaged.
    """
    import polars as pl  # takes a second, and most of publishing needs none

    file = folder.tables_dir / f"{name}.parquet"
    try:
        return pl.read_parquet(file).to_dicts()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise damaged(file, folder, error) from error


def damaged(file: Path, folder: SweepFolder, why: Exception) -> RecordError:
    """Make the error of a table that cannot be used."""
    remedy = f"make it again with `{shell_line('compare', folder.path)}`"
    return RecordError(f"{file} is damaged; {remedy}: {why}")


def inverse(value: float | None) -> float | None:
    """Turn a ratio of times into one of speeds."""
    return 1 / value if value else None


def _effects_of(
    manifest: Manifest, arm: str, effects: dict[str, dict[str, Any]]
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Effects of an arm against one other, and whether that is the baseline."""
    baseline = next(iter(manifest.sweep.references.values()), None)
    for effect in manifest.effects:
        row = effects.get(effect.id)
        if row and not effect.contrast and len(effect.pairs) == 1 and effect.pairs[0][0] == arm:
            yield effect.pairs[0][1] == baseline, row


def verdict_of(effect: dict[str, Any]) -> str:
    """The verdict on an effect in words; without one, its outcome says why."""
    return verdict_word(effect["verdict"] or effect["outcome"], effect.get("reason"))


def _standing(arm: dict[str, Any], effects: list[tuple[bool, dict[str, Any]]]) -> Standing:
    """Time and speed only of an arm that is ranked; peak memory only where something measured it."""
    ranked = not any(row["verdict"] in NOT_RANKED for _, row in effects)
    own = next((row for against_baseline, row in effects if against_baseline), None)
    bench = {"ms_per_unit": arm["paired_ns"] / _NS_PER_MS} if ranked else {}
    if arm["peak_bytes"]:
        bench["peak_mem_mb"] = arm["peak_bytes"] / MB
    speeds = {new: inverse(own[old]) for old, new in SPEED.items()} if own and ranked else {}
    said = {name: value for name, value in speeds.items() if value is not None}
    verdict = verdict_of(own) if own else ""
    return Standing(bench, {**said, **({"verdict": verdict} if verdict else {})})
