"""Effects -> report.html: one file that opens without a network."""

from __future__ import annotations

from collections.abc import Iterator

import plotly.graph_objects as go
import plotly.io
import polars as pl
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pipelines.analysis.arm_results import short_names
from pipelines.analysis.columns import Where
from pipelines.analysis.combinations import BETWEEN
from pipelines.analysis.compare import Comparison
from pipelines.analysis.effect_columns import effect_name
from pipelines.report import charts
from pipelines.report.chart_data import last_traces, round_times, size_curves
from pipelines.report.profile_links import linked_profiles
from pipelines.report.sentences import answer, footnotes, opening
from pipelines.report.tables import Table, answer_tables, arms_table, design_title, has_several_designs
from pipelines.report.templates import render
from pipelines.store.files import write_atomically
from pipelines.store.provenance import Provenance
from pipelines.store.records import Manifest, SweepFolder

Picture = tuple[str, str, go.Figure]
"""Title, caption and drawing."""


def write_html(
    folder: SweepFolder,
    manifest: Manifest,
    comparison: Comparison,
    trials: pl.DataFrame,
    provenance: Provenance,
) -> None:
    """Write report.html from what compare found and, for the pictures, from the series of the trials."""
    tables = list(answer_tables(comparison, Where.HTML))
    text = render(
        "report.html.j2",
        comparison=comparison,
        opening=opening(comparison),
        answer=answer(comparison),
        tables=tables,
        interactions=[(one.name, _markup(charts.interaction(one))) for one in comparison.corners],
        interacting=interaction_title(tables),
        arms=arms_table(comparison, Where.HTML),
        changes=[(arm.name or arm.label, arm.changes) for arm in comparison.arms if arm.changes],
        profiles=linked_profiles(folder),
        footnotes=footnotes(comparison),
        plotly=Markup(get_plotlyjs()),
        pictures=[
            (title, caption, _markup(figure))
            for title, caption, figure in _pictures(manifest, comparison, trials)
        ],
        provenance=provenance,
        command=f"perfsweep compare {folder.path}",
        measure=manifest.sweep.measure,
    )
    write_atomically(folder.report_file, text.encode())


def _markup(figure: go.Figure) -> Markup:
    """A figure for a page that carries the library itself."""
    options = {"displayModeBar": False, "responsive": True}
    return Markup(plotly.io.to_html(figure, include_plotlyjs=False, full_html=False, config=options))


def interaction_title(tables: list[Table]) -> str:
    """The title of the table beside which interactions are drawn: the first that estimates any."""
    effects = [table for table in tables if table.title.startswith("Effects")]
    titles = (table.title for table in effects if any(BETWEEN in row.effect.toggle for row in table.rows))
    return next(titles, "")


def _pictures(manifest: Manifest, comparison: Comparison, trials: pl.DataFrame) -> Iterator[Picture]:
    yield from _effects_picture(comparison)
    names = short_names(manifest)
    for curve in size_curves(trials, manifest.arms, _ladders(manifest)):
        caption = "Crosses are sizes whose trials did not finish, with the reason."
        yield f"Frontier of {curve.toggle}", caption, charts.size_curve(curve)
    if traces := last_traces(trials, names):
        caption = (
            "The last round of each arm, iteration by iteration; warm-up is dotted. Click a name to show"
            " or hide it."
        )
        yield "Iterations", caption, charts.iterations(traces, _first_arms(manifest, comparison))
    if rounds := round_times(trials, names):
        caption = "Pairs within a round are compared, so a shift of whole rounds does not count."
        yield "Rounds", caption, charts.distributions(rounds)
    peaks = [(arm.name or arm.label, arm.peak_bytes / 2**20) for arm in comparison.arms if arm.peak_bytes]
    if peaks:
        caption = "On CPU the resident memory of the process, the interpreter and its libraries included."
        yield "Memory", caption, charts.memory([label for label, _ in peaks], [peak for _, peak in peaks])


def _effects_picture(comparison: Comparison) -> Iterator[Picture]:
    several = has_several_designs(comparison)
    named = [
        (f"{effect_name(r)} ({design_title(r.effect.design)})" if several else effect_name(r), r)
        for r in comparison.effects
        if r.ratio is not None and r.low is not None and r.high is not None
    ]
    if named:
        caption = (
            "Each line is an effect with its 95 % interval; within the grey band there is no difference."
        )
        yield "Effects", caption, charts.effects(named, comparison.margin)


def _first_arms(manifest: Manifest, comparison: Comparison) -> list[str]:
    """Arms whose iterations are drawn until somebody clicks: the references, then the fastest."""
    timed = [r for r in comparison.effects if r.ratio is not None and r.low is not None]
    fastest = [r.effect.pairs[0][0] for r in sorted(timed, key=lambda r: r.ratio or 1.0)]
    return list(dict.fromkeys([*manifest.sweep.references.values(), *fastest]))[: charts.FEW_ARMS]


def _ladders(manifest: Manifest) -> dict[str, set[str]]:
    """Toggles that were measured as ladders, with the ids of their arms and bases."""
    ladders: dict[str, set[str]] = {}
    for effect in manifest.effects:
        if effect.design == "ladder":
            ladders.setdefault(effect.toggle, set()).update(arm for pair in effect.pairs for arm in pair)
    return ladders
