"""A W&B Report as code: what `report.md` says of a sweep, with the charts of its runs.

The text is the one that `compare` wrote, so that W&B says what the terminal said. Imports wandb late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsweep.pipelines.publish.dashboard import (
    Identity,
    View,
    charts,
    save_view,
    tracking_of,
    view_of,
    write_specification,
)
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line
from perfsweep.workloads.errors import ConfigError, RecordError

LONGEST_TITLE = 128
"""Characters that W&B takes."""

COLUMNS, HEIGHT = 24, 8
"""Of the grid that W&B lays charts out in, and of one chart; two fit in a row."""

_LOCAL_LINK = re.compile(r"\[([^\]]*)\]\((?![a-z]+://)[^)]*\)")
_LEFT_OUT = ("detail",)
"""Sections of the workspace that are useful only where you can choose runs."""


@dataclass(frozen=True)
class Document:
    """A report: its title, the sentence below, sections of text, and the charts of one sweep's runs."""

    title: str
    description: str
    sections: tuple[tuple[str, str], ...]
    charts: View


def document_of(folder: SweepFolder, manifest: Manifest) -> Document:
    """Read what `compare` wrote, as sections; what it links to stays on disk, and is named without a link.

    Raises
    ------
    RecordError
        Nothing was compared yet.
    """
    try:
        text = folder.markdown_file.read_text()
    except OSError as error:
        raise RecordError(
            f"{folder.markdown_file} cannot be read ({error.strerror});"
            f" `{shell_line('compare', folder.path)}` writes it"
        ) from error
    head, *sections = re.split(r"^## ", _LOCAL_LINK.sub(r"\1", text), flags=re.MULTILINE)
    opening, _, rest = head.partition("\n")[2].strip().partition("\n\n")
    parts = [
        ("Noise", rest),
        *((title, body) for title, _, body in (one.partition("\n") for one in sections)),
    ]
    return Document(
        title=f"perfsweep {manifest.sweep.name}"[:LONGEST_TITLE],
        description=opening,
        sections=tuple((title, body.strip()) for title, body in parts if body.strip()),
        charts=view_of(manifest),
    )


def build(
    folder: SweepFolder,
    manifest: Manifest,
    *,
    entity: str | None = None,
    project: str | None = None,
    file: Path | None = None,
) -> str:
    """Save a sweep's report on the server and return its address, or write its specification to `file`.

    Raises
    ------
    ConfigError
        The server cannot be used, or it refuses the report.
    RecordError
        Nothing was compared yet.
    """
    tracking, document = tracking_of(manifest, entity, project), document_of(folder, manifest)
    if file is not None:
        return write_specification(file, report(document, tracking.entity or "", tracking.project))

    missing: list[str] = []

    def save(entity: str, known: Identity | None) -> tuple[str, Identity]:
        made = report(document, entity, tracking.project, of_project=True)
        made.id = known["id"] if known else ""
        try:
            saved = made.save()
        except ValueError as error:  # raised where the charts' project is looked up
            missing.extend([f"{entity}/{tracking.project}"] if "not found" in str(error) else [])
            raise
        return saved.url, {"id": saved.id, "name": document.title}

    try:
        return save_view(tracking, folder.wandb_dir / "reports.json", "report", save)
    except ConfigError as error:
        if not missing:
            raise
        raise ConfigError(
            f"W&B has no project {missing[0]}, whose runs the report shows;"
            f" `{shell_line('publish', folder.path)}` makes it"
        ) from error


def report(document: Document, entity: str, project: str, *, of_project: bool = False) -> Any:
    """Make the report of wandb-workspaces; with `of_project` charts name their project, which W&B looks up.

    Without it they show the project that the report is in, and no server is asked.
    """
    wr = charts()

    return wr.Report(
        entity=entity,
        project=project,
        title=document.title,
        description=document.description,
        blocks=list(_blocks(document, (entity, project) if of_project else ("", ""))),
        width="fluid",
    )


def _blocks(document: Document, place: tuple[str, str]) -> Iterator[Any]:
    wr = charts()

    yield wr.TableOfContents()
    for title, text in document.sections:
        yield wr.H2(title)
        yield wr.MarkdownBlock(text)
    for title, panels in document.charts.sections:
        if title not in _LEFT_OUT:
            yield wr.H2(f"{title[0].upper()}{title[1:]}")
            yield _grid(document.charts.group, list(panels), *place)


def _grid(group: str, panels: list[Any], entity: str, project: str) -> Any:
    """Charts over the runs of one sweep, two in a row."""
    wr = charts()
    from wandb_workspaces import expr

    half = COLUMNS // 2
    for place, one in enumerate(panels):
        one.layout = wr.Layout(x=place % 2 * half, y=place // 2 * HEIGHT, w=half, h=HEIGHT)
    runs = wr.Runset(
        entity=entity,
        project=project,
        name=f"sweep {group}",
        filters=[expr.Metric("Group") == group],
        groupby=["config.variant"],
        order=[wr.OrderBy(name=wr.SummaryMetric("bench_ms_per_unit"), ascending=True)],
    )
    return wr.PanelGrid(runsets=[runs], panels=panels, hide_run_sets=True)
