"""A W&B workspace as code: what to look at after a sweep, from its manifest, for any entity and project.

The view is a value (`View`); `specification` is the only place that knows wandb-workspaces' private
serialiser. `save_view` keeps which view a sweep has on a server: building it again replaces it. Imports wandb
late.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.tracking import guarded, own_environment
from perfsweep.pipelines.publish.history_rows import plain
from perfsweep.pipelines.publish.server import address, key_may_go_to, probe
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.workloads.errors import ConfigError

BARS = 25
"""Effects in one bar chart: more are spread over several, so that their names stay legible."""

TIME, BY_ARM = "bench_ms_per_unit", "config.variant"
"""The figure by which arms are compared, and what tells their runs apart."""

RUNS_SHOWN = 50
"""Runs in a panel; W&B's default of 10 would hide most arms."""


@dataclass(frozen=True)
class View:
    """A workspace: sections of charts, objects of wandb-workspaces, over the runs of one sweep."""

    name: str
    group: str
    sections: tuple[tuple[str, tuple[Any, ...]], ...]


def build(
    folder: SweepFolder,
    manifest: Manifest,
    *,
    entity: str | None = None,
    project: str | None = None,
    file: Path | None = None,
) -> str:
    """Save a sweep's workspace on the server and return its address, or write its specification to `file`.

    Raises
    ------
    ConfigError
        The server cannot be used, or it refuses the view.
    """
    tracking, view = tracking_of(manifest, entity, project), view_of(manifest)
    if file is not None:
        return write_specification(file, workspace(view, tracking.entity or "", tracking.project))

    def save(entity: str, known: Identity | None) -> tuple[str, Identity]:
        made = workspace(view, entity, tracking.project)
        if known:
            made._internal_id, made._internal_name = known["id"], known["name"]
        saved = made.save() if known else made.save_as_new_view()
        return saved.url, {"id": saved._internal_id, "name": saved._internal_name}

    return save_view(tracking, folder.wandb_dir / "dashboards.json", "dashboard", save)


def view_of(manifest: Manifest) -> View:
    """Choose what is worth seeing: effects, arms, toggles, curves, frontiers of toggles with numbers."""
    varied = _varied(manifest)
    sections = [("effects", _effects(manifest)), ("arms", _arms()), ("toggles", _toggles(varied))]
    sections.append(("iteration time", _curves(manifest)))
    sections += [(f"frontier of {name}", _frontier(name)) for name in varied if _is_ladder(manifest, name)]
    sections.append(("detail", (charts().RunComparer(diff_only="split"),)))
    return View(f"perfsweep {manifest.sweep.name}", manifest.sweep.name, tuple(sections))


def _curves(manifest: Manifest) -> tuple[Any, ...]:
    before = "discarded job, ms" if manifest.sweep.declared.shape == "job" else "warm-up, ms"
    return (
        _lines("time of an iteration, ms", "iter/index", "iter/ms", log_y=True),
        _lines("phases of an iteration, ms", "iter/index", regex="iter/ms_.*"),
        _bars("iterations above twice the median, ms", "spikes_ms", "largest_ms"),
        _bars("iterations from one of them to the next", "spikes_every"),
        _lines("loss", "iter/index", "iter/loss"),
        _lines(before, "warmup/index", "warmup/ms", log_y=True),
    )


def _effects(manifest: Manifest) -> tuple[Any, ...]:
    names = dict.fromkeys(
        f"effect/{plain(e.design)}/{plain(f'{e.toggle}={e.level}' if e.level else e.toggle)}/speed"
        for e in manifest.effects
    )
    metrics, title = list(names), "speed of each level against its base"
    parts = [metrics[start : start + BARS] for start in range(0, len(metrics), BARS)] or [[]]
    several = len(parts) > 1
    return (
        _media("effects with their intervals", "speeds"),
        *(
            _bars(f"{title} ({n} of {len(parts)})" if several else title, *part, groupby=None)
            for n, part in enumerate(parts, 1)
        ),
        _scatter("time against memory", "bench_peak_mem_mb", TIME, log_x=True),
        _media("effects with rulings, and the report", "effects", "report"),
    )


def _arms() -> tuple[Any, ...]:
    return (_bars("time per unit, ms", TIME), _bars("peak memory, MB", "bench_peak_mem_mb"))


def _toggles(varied: Sequence[str]) -> tuple[Any, ...]:
    from wandb_workspaces.reports.v2.interface import ParallelCoordinatesPlotColumn

    names = (*(f"config.toggles.{name}" for name in varied), TIME)
    columns = [ParallelCoordinatesPlotColumn(metric=_metric(name), log=name == TIME) for name in names]
    return (
        charts().ParallelCoordinatesPlot(title="levels and time per unit", columns=columns),
        charts().ParameterImportancePlot(with_respect_to=TIME),
    )


def _is_ladder(manifest: Manifest, name: str) -> bool:
    return any(isinstance(arm.levels.get(name), (int, float)) for arm in manifest.arms)


def _frontier(name: str) -> tuple[Any, ...]:
    level = f"config.toggles.{name}"
    return (
        _scatter(f"time per unit by {name}, ms", TIME, level, log_y=True),
        _scatter(f"peak memory by {name}, MB", "bench_peak_mem_mb", level, log_y=True),
    )


def _varied(manifest: Manifest) -> list[str]:
    """Toggles that have more than one level among the arms."""
    levels: dict[str, set[Any]] = {}
    for arm in manifest.arms:
        for name, value in arm.levels.items():
            levels.setdefault(name, set()).add(value)
    return [name for name, values in levels.items() if len(values) > 1]


def workspace(view: View, entity: str, project: str) -> Any:
    """The view as an object of wandb-workspaces."""
    import wandb_workspaces.workspaces as ws

    sections = [ws.Section(name=name, panels=list(panels), is_open=True) for name, panels in view.sections]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=view.name,
        sections=sections,
        settings=ws.WorkspaceSettings(max_runs=RUNS_SHOWN),
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("Group") == view.group),
            groupby=[ws.Metric("JobType"), ws.Config("variant")],
            order=[ws.Ordering(ws.Summary(TIME), ascending=True)],
        ),
    )


def charts() -> Any:
    """The library of W&B's charts and reports, whose names its types call private."""
    return import_module("wandb_workspaces.reports.v2")


def _lines(title: str, x: str, *metrics: str, log_y: bool = False, regex: str | None = None) -> Any:
    return charts().LinePlot(
        title=title,
        x=x,
        y=list(metrics),
        metric_regex=regex,
        log_y=log_y,
        groupby=BY_ARM,
        groupby_aggfunc="median",
        groupby_rangefunc="minmax",
        smoothing_type="none",
        max_runs_to_show=RUNS_SHOWN,
    )


def _bars(title: str, *metrics: str, groupby: str | None = BY_ARM) -> Any:
    most = {"max_runs_to_show": RUNS_SHOWN, "max_bars_to_show": RUNS_SHOWN}
    return charts().BarPlot(title=title, metrics=list(metrics), orientation="h", groupby=groupby, **most)


def _scatter(title: str, y: str, x: str, log_x: bool = False, log_y: bool = False) -> Any:
    return charts().ScatterPlot(title=title, x=_metric(x), y=_metric(y), log_x=log_x, log_y=log_y)


def _media(title: str, *keys: str) -> Any:
    return charts().MediaBrowser(title=title, media_keys=list(keys))


def _metric(name: str) -> Any:
    config = name.removeprefix("config.")
    return charts().Config(config) if config != name else charts().SummaryMetric(name)


def write_specification(file: Path, made: Any) -> str:
    """Write a workspace or a report as W&B stores it, without a server; return the file."""
    write_atomically(file, json.dumps(specification(made), indent=1).encode())
    return str(file)


def specification(made: Any) -> dict[str, Any]:
    """A workspace or a report as W&B stores it; equal ones give equal specifications."""
    return _numbered(made._to_model().model_dump(mode="json", by_alias=True, exclude_none=True))


def _numbered(values: dict[str, Any]) -> dict[str, Any]:
    """Replace the random ids of panels and sections by ones that follow from their place."""
    text = json.dumps(values)
    for place, old in enumerate(dict.fromkeys(_ids(values))):
        text = text.replace(json.dumps(old), json.dumps(hashlib.sha256(f"{place}".encode()).hexdigest()[:12]))
    return json.loads(text)


def _ids(values: Any) -> Iterable[str]:
    if isinstance(values, dict):
        for name, value in values.items():
            if name in ("__id__", "id") and isinstance(value, str) and value:
                yield value
            else:
                yield from _ids(value)
    elif isinstance(values, list):
        for value in values:
            yield from _ids(value)


Identity = dict[str, str]
"""`id` and `name` of a view in W&B's database."""

Save = Callable[[str, Identity | None], tuple[str, Identity]]
"""Saves a view for an entity, in the place of an earlier one where there is one: its address and identity."""


def _kept(file: Path) -> dict[str, Identity]:
    """Which view a sweep has on which server and in which project."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}  # not built yet, or damaged: a view more in W&B does no harm


def tracking_of(manifest: Manifest, entity: str | None, project: str | None) -> Any:
    """Return the sweep's settings, with another entity or project where one is named."""
    known = {"entity": entity, "project": project}
    return replace(manifest.sweep.tracking, **{name: value for name, value in known.items() if value})


def save_view(tracking: Any, file: Path, what: str, save: Save) -> str:
    """Save a view on the server of `tracking` and return its address; `file` remembers it.

    Raises
    ------
    ConfigError
        The server cannot be used, or it refuses the view.
    """
    account = probe(tracking)
    if account.problem:
        raise ConfigError(f"{account.problem}; --file PATH writes the specification without a server")
    server, entity = address(tracking, os.environ), account.entity or tracking.entity or ""
    place, kept, problems = f"{server}/{entity}/{tracking.project}", _kept(file), list[str]()
    sent = key_may_go_to(server, os.environ)
    with tempfile.TemporaryDirectory() as aside, own_environment(Path(aside), server, credentials=sent):
        try:
            for known in (kept.get(place), None):
                problems.clear()
                with guarded(problems):  # it may have been deleted in W&B: then it gets a new one
                    url, kept[place] = save(entity, known)
                    write_atomically(file, json.dumps(kept, indent=1).encode())
                    return url
        finally:
            if "wandb" in sys.modules:
                with guarded([]):
                    sys.modules["wandb"].teardown()
    raise ConfigError(
        f"{server} did not take the {what} ({problems[0]}); --file PATH writes it without a server"
    )
