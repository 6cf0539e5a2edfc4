"""Effects -> report.html: one file that opens without a network."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.io
import polars as pl
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from pipelines import units
from pipelines.analysis.combinations import BETWEEN
from pipelines.analysis.compare import ArmResult, Comparison, short_names
from pipelines.analysis.judge import EffectResult
from pipelines.analysis.oracles import Quality
from pipelines.analysis.outcomes import in_words
from pipelines.report import charts, wording
from pipelines.report.chart_data import frontiers, last_traces, spreads
from pipelines.report.profile_links import links
from pipelines.store.files import write_atomically
from pipelines.store.provenance import Provenance
from pipelines.store.records import Manifest, SweepFolder


def write_html(
    folder: SweepFolder,
    manifest: Manifest,
    comparison: Comparison,
    trials: pl.DataFrame,
    provenance: Provenance,
) -> None:
    """Write report.html from what compare found and, for the pictures, from the series of the trials."""
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = environment.from_string(files("pipelines.report").joinpath("report.html.j2").read_text())
    checks = wording.quality_checks(comparison)
    text = template.render(
        comparison=comparison,
        headline=wording.headline(comparison).partition(": ")[2].capitalize(),
        answer=wording.answer(comparison),
        groups=[
            (title, [_effect_row(comparison, one) for one in found])
            for title, found in wording.by_design(comparison)
        ],
        interactions=[
            (wording.corners_row(one)[0], _markup(charts.interaction(one))) for one in comparison.corners
        ],
        interacting=interacting(comparison),
        together_headings=wording.TOGETHER,
        together=[wording.together_row(one) for one in comparison.together],
        quality_headings=wording.quality_headings(comparison),
        quality=[_quality_row(row, checks) for row in comparison.quality],
        moved=[(arm.name or arm.label, arm.moved) for arm in comparison.arms if arm.moved],
        arms=[_arm_row(arm) for arm in comparison.arms],
        shows_mfu=wording.shows_mfu(comparison),
        claims=[
            (wording.subject(comparison, one), one.claim, wording.ruling_text(one))
            for one in comparison.rulings
        ],
        profiles=links(folder),
        footnotes=wording.footnotes(comparison),
        plotly=Markup(get_plotlyjs()),
        pictures=[
            (title, caption, _markup(figure))
            for title, caption, figure in _figures(manifest, comparison, trials)
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


def interacting(comparison: Comparison) -> str:
    """The design (as a title) beside whose table the interactions are drawn: the first that estimates any."""
    titles = [
        title
        for title, effects in wording.by_design(comparison)
        if any(BETWEEN in r.effect.toggle for r in effects)
    ]
    return next(iter(titles), "")


def _figures(
    manifest: Manifest, comparison: Comparison, trials: pl.DataFrame
) -> Iterable[tuple[str, str, go.Figure]]:
    shown = [
        r for r in comparison.effects if r.ratio is not None and r.low is not None and r.high is not None
    ]
    if shown:
        several = wording.has_several_designs(comparison)
        named = [(wording.in_design(r) if several else wording.name(r), r) for r in shown]
        caption = (
            "Each line is an effect with its 95 % interval; within the grey band there is no difference."
        )
        yield "Effects", caption, charts.effects(named, comparison.margin)
    names = short_names(manifest)
    ladders = _ladders(manifest)
    for found in frontiers(trials, manifest.arms, ladders):
        yield (
            f"Frontier of {found.toggle}",
            "Crosses are sizes whose trials did not finish, with the reason.",
            charts.frontier(found),
        )
    if traces := last_traces(trials, names):
        best = [r.effect.pairs[0][0] for r in sorted(shown, key=lambda r: r.ratio or 1.0)]
        first = list(dict.fromkeys([*manifest.sweep.references.values(), *best]))[: charts.FEW_ARMS]
        yield (
            "Iterations",
            (
                "The last round of each arm, iteration by iteration; warm-up is dotted. Click a name to show"
                " or hide it."
            ),
            charts.iterations(traces, first),
        )
    if rounds := spreads(trials, names):
        yield (
            "Rounds",
            "Pairs within a round are compared, so a shift of whole rounds does not count.",
            charts.distributions(rounds),
        )
    peaks = [(arm.name or arm.label, arm.peak_bytes / 2**20) for arm in comparison.arms if arm.peak_bytes]
    if peaks:
        caption = "On CPU the resident memory of the process, the interpreter and its libraries included."
        yield "Memory", caption, charts.memory([label for label, _ in peaks], [peak for _, peak in peaks])


def _ladders(manifest: Manifest) -> dict[str, set[str]]:
    """Toggles that were measured as ladders, with the ids of their arms and bases."""
    found: dict[str, set[str]] = {}
    for effect in manifest.effects:
        if effect.design == "ladder":
            found.setdefault(effect.toggle, set()).update(arm for pair in effect.pairs for arm in pair)
    return found


def _effect_row(comparison: Comparison, result: EffectResult) -> dict[str, Any]:
    return {
        "name": wording.name(result),
        "base": result.base_label,
        "time": wording.percent(result.ratio),
        "interval": wording.interval(result),
        "verdict": result.word,
        "css": result.verdict.name.lower() if result.verdict else "none",
        "parity": result.parity_text,
        "cpu": wording.cpu_text(result),
        "memory": wording.megabytes(result.memory_bytes),
        "compile": wording.compile_text(result),
        "warm": wording.warm_compile_text(result),
        "rounds": result.rounds,
        "trials": wording.trials_text(comparison, result),
        "method": result.method,
    }


def _quality_row(row: Quality, checks: list[str]) -> dict[str, Any]:
    figures = {figure.check: figure for figure in row.figures}
    return {"arm": row.arm, "figures": [figures.get(check) for check in checks]}


def _arm_row(arm: ArmResult) -> dict[str, Any]:
    return {
        "name": arm.name or arm.label,
        "label": arm.label,
        "time": units.duration(arm.ns_per_unit) if arm.ns_per_unit else "",
        "iteration": units.duration(arm.iteration_ns) if arm.iteration_ns else "",
        "phases": wording.phases_text(arm),
        "rounds": arm.rounds,
        "memory": f"{arm.peak_bytes / 2**20:.0f} MB" if arm.peak_bytes else "",
        "mfu": wording.mfu_text(arm),
        "outcomes": in_words(arm.outcomes),
    }
