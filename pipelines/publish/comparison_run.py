"""The comparison of a sweep as one W&B run: effects as numbers, table and picture, and the report as it is.

Made from the files that compare and report have written, so that it can be published from anywhere. The table
has the columns of `effects.parquet`, whatever they are; where ratios of times stand there, it has speed-ups.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from perfsweep.pipelines.publish.content import LONGEST_NAME, LONGEST_TAG, RunContent, Segment
from perfsweep.pipelines.publish.history_rows import plain
from perfsweep.pipelines.store.records import SCHEMA, Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line
from perfsweep.workloads.errors import RecordError

_SPEED = {"ratio": "speedup", "high": "speedup_lo", "low": "speedup_hi"}
"""Columns of ratios of times, and what their inverses are called: the bounds change places."""


NO_BEST = "none is faster"
"""What stands in the place of the best level where no level is."""


def compare_content(folder: SweepFolder, manifest: Manifest, identity: str) -> RunContent:
    """Make the run that shows a comparison.

    Raises
    ------
    RecordError
        The table of effects is damaged.
    """
    file = folder.tables_dir / "effects.parquet"
    try:
        content = file.read_bytes()
        effects = [_effect(row) for row in pl.read_parquet(content).to_dicts()]
        summary = _summary(effects, manifest.sweep.columns)
    except (OSError, pl.exceptions.PolarsError, KeyError) as error:
        raise RecordError(
            f"{file} is damaged; make it again with `{shell_line('compare', folder.path)}`: {error}"
        ) from error
    sweep, tracking = manifest.sweep, manifest.sweep.tracking
    report = folder.report_file if folder.report_file.exists() else None
    digest = hashlib.sha256(content + (report.read_bytes() if report else b"")).hexdigest()[:16]
    return RunContent(
        run_id=f"{identity}-compare",
        arm="",
        label="comparison",
        pack="",
        name=f"compare-{sweep.name}"[:LONGEST_NAME],
        project=tracking.project,
        entity=tracking.entity,
        group=sweep.name[:LONGEST_NAME],
        job_type="compare",
        tags=tuple(tag[:LONGEST_TAG] for tag in (sweep.workload.rpartition(":")[2], sweep.name)),
        config={
            "schema_version": SCHEMA,
            "workload": sweep.workload,
            "sweep_id": sweep.name,
            "code": sweep.code,
        },
        segments=(Segment(digest, 1, partial(_media, effects, report), numbers=False),),
        summary=summary,
        exit_code=0,
        files=(("effects.parquet", file), *((("report.html", report),) if report else ())),
    )


def _effect(row: dict[str, Any]) -> dict[str, Any]:
    """An effect with speed-ups in place of ratios of times; without a verdict, its outcome says why."""
    effect = {
        _SPEED.get(name, name): _inverse(value) if name in _SPEED else value for name, value in row.items()
    }
    return {**effect, "verdict": row["verdict"] or row["outcome"]}


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def _name(effect: dict[str, Any]) -> str:
    return f"{effect['toggle']}={effect['level']}" if effect["level"] else effect["toggle"]


def _full_name(effect: dict[str, Any]) -> str:
    """One level can be compared by several designs."""
    return f"{_name(effect)} ({effect['design'].replace('_', ' ')})"


def _summary(effects: list[dict[str, Any]], columns: Sequence[str]) -> dict[str, Any]:
    """Each effect's speed-up and further `columns` with bounds, and the best faster one as charts sort it."""
    summary: dict[str, Any] = {}
    for effect in effects:
        prefix = f"effect/{plain(effect['design'])}/{plain(_name(effect))}"
        summary |= {f"{prefix}/{name}": effect[name] for name in _SPEED.values() if effect[name]}
        summary[f"{prefix}/verdict"] = effect["verdict"]
        further = [f"{key}_{name}" for key in columns for name in ("value", "ratio", "low", "high")]
        summary |= {f"{prefix}/{name}": effect[name] for name in further if effect.get(name) is not None}
    faster = [effect for effect in effects if effect["verdict"] == "faster" and effect["speedup"]]
    best = max(faster, key=lambda effect: effect["speedup"], default=None)
    named = {name: best[name] for name in _SPEED.values()} if best else {}
    named["best"] = _name(best) if best else NO_BEST
    summary |= {f"bench/{name}": value for name, value in named.items()}
    return summary | {f"bench_{name}": value for name, value in named.items()}


def _media(effects: list[dict[str, Any]], report: Path | None) -> Iterator[dict[str, Any]]:
    """The one row of the run. Imports wandb."""
    import wandb

    table = wandb.Table(
        columns=list(effects[0]) if effects else [],
        data=[[_cell(value) for value in effect.values()] for effect in effects],
    )
    row: dict[str, Any] = {"effects": table}
    if timed := [effect for effect in effects if all(effect[name] for name in _SPEED.values())]:
        row["speedups"] = wandb.Plotly(speedup_bars(timed))
    if report is not None:
        row["report"] = wandb.Html(report.read_text(), inject=False)
    yield row


def speedup_bars(effects: list[dict[str, Any]]) -> Any:
    """A figure of bars with 95 % intervals, largest speed-up on top; changed results are red."""
    import plotly.graph_objects as go

    rows = sorted(effects, key=lambda effect: effect["speedup"])
    bars = go.Bar(
        x=[row["speedup"] for row in rows],
        y=[_full_name(row) for row in rows],
        orientation="h",
        marker={"color": ["#c0392b" if row["verdict"] == "different" else "#2a78d6" for row in rows]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [row["speedup_hi"] - row["speedup"] for row in rows],
            "arrayminus": [row["speedup"] - row["speedup_lo"] for row in rows],
        },
    )
    figure = go.Figure(bars)
    figure.add_vline(x=1, line_width=1, line_color="#888888")
    figure.update_layout(xaxis_title="speed-up against the base (95 % interval)", height=120 + 34 * len(rows))
    return figure


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
