"""The comparison of a sweep as one W&B run: effects as numbers, table and picture, and the report as it is.

Made from the files that compare and report have written, so that it can be published from anywhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.config.tracking import Tracking
from pipelines.publish.content import LONGEST_NAME, LONGEST_TAG, RunContent, Segment
from pipelines.publish.history import plain
from pipelines.store.records import SCHEMA, Manifest, SweepFolder
from workloads.errors import RecordError

_SPEED = ("speedup", "speedup_lo", "speedup_hi")
COLUMNS = ("design", "toggle", "level", "arm", "base", "verdict", *_SPEED, "rounds", "parity", "rulings")


def compare_content(folder: SweepFolder, manifest: Manifest, identity: str) -> RunContent:
    """The run that shows a comparison.

    Raises
    ------
    RecordError
        The table of effects is damaged.
    """
    file = folder.tables_dir / "effects.parquet"
    try:
        content = file.read_bytes()
        effects = [_effect(row) for row in pl.read_parquet(content).to_dicts()]
    except (OSError, pl.exceptions.PolarsError, KeyError) as error:
        raise RecordError(
            f"{file} is damaged; make it again with `perfsweep compare {folder.path}`: {error}"
        ) from error
    sweep, tracking = manifest.sweep, Tracking.of(manifest.sweep.tracking)
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
        summary=_summary(effects),
        exit_code=0,
        files=(("effects.parquet", file), *((("report.html", report),) if report else ())),
    )


def _effect(row: dict[str, Any]) -> dict[str, Any]:
    """An effect as speed-up: the inverse of the ratio of times, so that its bounds change places."""
    inverse = {"speedup": row["ratio"], "speedup_lo": row["high"], "speedup_hi": row["low"]}
    speed = {name: 1 / value if value else None for name, value in inverse.items()}
    verdict = row["verdict"] or row["outcome"]
    return {**{name: row[name] for name in COLUMNS if name in row}, **speed, "verdict": verdict}


def _name(effect: dict[str, Any]) -> str:
    return f"{effect['toggle']}={effect['level']}" if effect["level"] else effect["toggle"]


def _full_name(effect: dict[str, Any]) -> str:
    """One level can be compared by several designs."""
    return f"{_name(effect)} ({effect['design'].replace('_', ' ')})"


def _summary(effects: list[dict[str, Any]]) -> dict[str, Any]:
    """Each effect's speed-up with its bounds, and the largest one under the names that charts sort by."""
    found: dict[str, Any] = {}
    for effect in effects:
        place = f"effect/{plain(effect['design'])}/{plain(_name(effect))}"
        found |= {f"{place}/{name}": effect[name] for name in _SPEED if effect[name]}
        found[f"{place}/verdict"] = effect["verdict"]
    if sure := [effect for effect in effects if effect["verdict"] in ("faster", "slower", "no difference")]:
        best = max(sure, key=lambda effect: effect["speedup"] or 0.0)
        named = {**{name: best[name] for name in _SPEED}, "best": _name(best)}
        found |= {f"bench/{name}": value for name, value in named.items()}
        found |= {f"bench_{name}": value for name, value in named.items()}
    return found


def _media(effects: list[dict[str, Any]], report: Path | None) -> Iterator[dict[str, Any]]:
    """The one row of the run. Imports wandb."""
    import wandb

    rows = [[_cell(effect.get(name)) for name in COLUMNS] for effect in effects]
    row: dict[str, Any] = {"effects": wandb.Table(columns=list(COLUMNS), data=rows)}
    if shown := [
        effect for effect in effects if effect["speedup"] and effect["speedup_lo"] and effect["speedup_hi"]
    ]:
        row["speedups"] = wandb.Plotly(speedup_bars(shown))
    if report is not None:
        row["report"] = wandb.Html(report.read_text(), inject=False)
    yield row


def speedup_bars(effects: list[dict[str, Any]]) -> Any:
    """A figure of bars with 95 % intervals, largest speed-up on top; changed results are red."""
    import plotly.graph_objects as go

    shown = sorted(effects, key=lambda effect: effect["speedup"])
    values = [effect["speedup"] for effect in shown]
    bars = go.Bar(
        x=values,
        y=[_full_name(effect) for effect in shown],
        orientation="h",
        marker={"color": ["#c0392b" if effect["verdict"] == "different" else "#2a78d6" for effect in shown]},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [effect["speedup_hi"] - effect["speedup"] for effect in shown],
            "arrayminus": [effect["speedup"] - effect["speedup_lo"] for effect in shown],
        },
    )
    figure = go.Figure(bars)
    figure.add_vline(x=1, line_width=1, line_color="#888888")
    figure.update_layout(
        xaxis_title="speed-up against the base (95 % interval)", height=120 + 34 * len(shown)
    )
    return figure


def _cell(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
