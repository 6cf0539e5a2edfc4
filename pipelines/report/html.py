"""Effects -> report.html: one file that opens without a network; what fills its templates is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.combinations import Corners
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import BETWEEN, counts
from perfsweep.pipelines.report import svg
from perfsweep.pipelines.report.arm_charts import (
    breakdown,
    iterations_chart,
    last_traces,
    memory_chart,
    phases_chart,
)
from perfsweep.pipelines.report.effects_chart import chart as effects_chart
from perfsweep.pipelines.report.effects_chart import effect_rows, interaction, steps
from perfsweep.pipelines.report.effects_chart import waterfall as waterfall_chart
from perfsweep.pipelines.report.profile_tables import PROFILE_HEADINGS, linked_profiles
from perfsweep.pipelines.report.sentences import COMMANDS, conclusions, footnotes, open_questions, opening
from perfsweep.pipelines.report.tables import Table, answer_tables, arms_table, changes_table
from perfsweep.pipelines.report.trade_off import TradeOff, size_curve, size_curves, trade_off
from perfsweep.pipelines.report.trade_off import chart as trade_off_chart
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.profiles import kept_profiles, read_course
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import PLACEBO, Manifest, SweepFolder
from perfsweep.pipelines.terminal import shell_line


@dataclass(frozen=True)
class Picture:
    """A drawing with its title, a caption that says how to read it, and its pixels on a desk."""

    title: str
    caption: str
    chart: Callable[[int], Figure]
    desk: int = svg.WIDE

    @property
    def whole(self) -> bool:
        """Whether it needs the width of the page."""
        return self.desk > svg.HALF

    @property
    def drawing(self) -> Markup:
        """The figure for a desk and for a phone."""
        name = re.sub(r"\W", "-", self.title.lower())
        return svg.drawn(self.chart, name, f"{self.title}. {self.caption}", self.desk)


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
        conclusions=conclusions(comparison),
        commands=COMMANDS,
        questions=open_questions(comparison),
        tables=tables,
        interactions=[(one.name, _interaction(number, one)) for number, one in enumerate(comparison.corners)],
        interacting=interaction_title(tables),
        arms=arms_table(comparison, Where.HTML),
        changes=changes_table(comparison),
        profiles=linked_profiles(folder),
        profile_headings=PROFILE_HEADINGS,
        footnotes=footnotes(comparison),
        answers=list(answer_pictures(comparison)),
        pictures=[*_pictures(manifest, comparison, trials), *_memory_pictures(folder)],
        provenance=provenance,
        command=shell_line("compare", folder.path),
        measure=manifest.sweep.measure,
    )
    write_atomically(folder.report_file, text.encode())


def _interaction(number: int, corners: Corners) -> Markup:
    label = f"Interaction of {corners.name}: time against neither"
    return svg.one(partial(interaction, corners), f"interaction-{number}", label)


def interaction_title(tables: list[Table]) -> str:
    """The title of the table with the picture of interactions: the first that estimates any."""
    effects = [table for table in tables if table.title.startswith("Effects")]
    titles = (table.title for table in effects if any(BETWEEN in row.effect.toggle for row in table.rows))
    return next(titles, "")


def _discarded(manifest: Manifest) -> str:
    """What a trial does before its timed part; plans of old declare nothing."""
    return "the discarded job" if manifest.sweep.declared.shape == "job" else "warm-up"


def _pictures(manifest: Manifest, comparison: Comparison, trials: pl.DataFrame) -> Iterator[Picture]:
    if found := trade_off(comparison):
        yield Picture("Trade-off", _trade_off_caption(found), partial(trade_off_chart, found))
    names = manifest.arm_names
    for curve in size_curves(trials, manifest.arms, _ladders(manifest)):
        caption = "Crosses are sizes whose trials did not finish, with the reason."
        yield Picture(f"Frontier of {curve.toggle}", caption, partial(size_curve, curve))
    shown = {arm: names[arm] for arm in baseline_and_fastest(manifest, comparison) if arm in names}
    if traces := last_traces(trials, shown):
        before = f"; {_discarded(manifest)} is dotted" if any(trace.has_warm_up for trace in traces) else ""
        spikes = " Marks are spikes, named by the phases that take longer in them." * any(
            trace.spikes for trace in traces
        )
        caption = f"The last round of {' and '.join(shown.values())}, iteration by iteration{before}.{spikes}"
        yield Picture("Iterations", caption, partial(iterations_chart, traces))


def _trade_off_caption(found: TradeOff) -> str:
    """How to read the picture of a trade-off."""
    paired = "Times are those of paired rounds; the table of effects says whether two neighbours differ."
    if not any(one.timed for one in found.choices):
        return (
            f"{paired} No comparison of times here has a verdict. The picture says where arms lie,"
            " and not which of them to choose."
        )
    of = "draws more energy" if found.of == "energy" else "needs more memory"
    worse = f", {of}, or costs more," if any(one.cost is not None for one in found.choices) else f" or {of}"
    different = " Crosses are arms whose results are not known to be the same: they do not count."
    untimed = " Squares are arms without a verdict on their times: they beat no arm, and no arm beats them."
    return (
        f"{paired} Filled points, joined by a dashed line, are the Pareto front: every other arm takes"
        f" longer{worse} by more than the margin. Circles are arms that another one beats in all of"
        f" it.{different if any(not one.same for one in found.choices) else ''}"
        f"{untimed if any(one.same and not one.timed for one in found.choices) else ''}"
    )


def _memory_pictures(folder: SweepFolder) -> Iterator[Picture]:
    for kept in kept_profiles(folder):
        if (course := read_course(kept.folder)) is None:
            continue
        caption = (
            f"{kept.profile.slice} in a profile trial, phases shaded; below, the resident memory of the"
            " process."
            f"{'' if course.on_device else ' Allocated means above what there was when the slice began.'}"
        )
        yield Picture(f"Memory of {kept.profile.arm.label}", caption, partial(memory_chart, course))


def answer_pictures(comparison: Comparison) -> Iterator[Picture]:
    """The pictures next to the tables of effects: the effects, and what explains them."""
    if rows := effect_rows(comparison):
        caption = (
            "Each line is an effect with its 95 % interval; in the grey band is no difference. The form of a"
            " point says what to do, as its colour does. An arrow ends an interval wider than the axis."
        )
        yield Picture("Effects", caption, partial(effects_chart, rows, comparison.margin), _desk(rows))
    if found := breakdown(comparison):
        caption = (
            "Where the time of a unit goes, by the phases that the workload marks: medians of the rounds."
        )
        yield Picture("Phases", caption, partial(phases_chart, found), _desk(found.bars))
    if together := comparison.together:
        hatched = (
            " A hatched step has no time of its own."
            if any(not one.result for one in steps(together))
            else ""
        )
        caption = f"All winners at once, each on top of those before it, as measured.{hatched}"
        baseline = comparison.reference.name if comparison.reference else "baseline"
        yield Picture("Together", caption, partial(waterfall_chart, together, baseline), svg.HALF)


def _desk(rows: Sized) -> int:
    """Pixels of a picture by its rows: of many rows, whose names may not fold, it has the page's width."""
    return svg.WIDE if len(rows) > svg.MANY else svg.HALF


def baseline_and_fastest(manifest: Manifest, comparison: Comparison) -> list[str]:
    """Arms (ids) whose iterations are drawn: the baseline, and the fastest whose time counts."""
    doubtful = [r for r in comparison.effects if not counts(r) or r.effect.design == PLACEBO]
    left_out = {pair[0] for r in doubtful for pair in r.effect.pairs}
    timed = [arm for arm in comparison.arms if arm.paired_ns and arm.id not in left_out]
    fastest = sorted(timed, key=lambda arm: arm.paired_ns or 0.0)[:1]
    baseline = next(iter(manifest.sweep.references.values()))
    return list(dict.fromkeys([baseline, *(arm.id for arm in fastest)]))


def _ladders(manifest: Manifest) -> dict[str, set[str]]:
    """Toggles that were measured as ladders, with the ids of their arms and bases."""
    ladders: dict[str, set[str]] = {}
    for effect in manifest.effects:
        if effect.design == "ladder":
            ladders.setdefault(effect.toggle, set()).update(arm for pair in effect.pairs for arm in pair)
    return ladders


def render(template: str, **values: Any) -> str:
    """Fill a template, such as ``report.html.j2``."""
    return _environment().get_template(template).render(**values)


def breakable(text: str) -> Markup:
    """Let a name or a path go on in the next line after its separators, rather than anywhere."""
    return Markup(re.sub(r"(=(?=\w)|[_,/](?=[^\W\d]))", r"\1<wbr>", str(escape(unbroken(text)))))


_UNIT = re.compile(
    r"(?<=\d) (?=(?:%|[GM]i?B|[num]?s|J)(?!\w))|(?<=\dx) (?=(?:less|more)\b)|(?<=\d) (?=\.\. )"
)
_PAIR = re.compile(r"(\[[-+\d.e]+x?,) (?=[-+\d.e]+x?\])|(?<=\d\xa0\.\.) ")


def unbroken(text: str) -> str:
    """Keep a quantity with its unit in one line, and the two ends of an interval."""
    return _PAIR.sub("\\1\xa0", _UNIT.sub("\xa0", text))


def with_code(text: str) -> Markup:
    """Mark up text between backticks as code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(unbroken(text)))))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("perfsweep.pipelines.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["breakable"] = breakable
    environment.filters["unbroken"] = unbroken
    environment.filters["with_code"] = with_code
    return environment
