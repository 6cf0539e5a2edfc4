"""Effects -> terminal and HTML. Shows what compare found; decides nothing."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.io
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.compare import ArmResult, Comparison
from pipelines.files import write_atomically
from pipelines.judge import EffectResult
from pipelines.measure.verdicts import Verdict
from pipelines.records import Manifest, SweepFolder

STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.NO_DIFFERENCE: "dim",
    Verdict.UNDECIDED: "yellow",
    Verdict.DIFFERENT: "bold red",
}


def show(console: Console, comparison: Comparison) -> None:
    """Print the table of effects and what stands beside it; readable at 100 columns."""
    console.print(f"\n{headline(comparison)}", highlight=False)
    for title, effects in by_design(comparison):
        table = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("toggle", min_width=22)
        for heading in ("time", "95 % interval"):
            table.add_column(heading, justify="right", no_wrap=True)
        for heading in ("verdict", "results"):
            table.add_column(heading)
        for heading in ("memory", "compile"):
            table.add_column(heading, justify="right", no_wrap=True)
        for effect in effects:
            table.add_row(*terminal_row(effect))
        console.print(table)
    _show_claims(console, comparison)
    for line in footnotes(comparison):
        console.print(f"- {line}", highlight=False)


def _show_claims(console: Console, comparison: Comparison) -> None:
    ruled = [(result, claim, ruling) for result in comparison.effects for claim, ruling in result.rulings]
    if not ruled:
        return
    table = Table(title="\nclaims", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("toggle", "claim", "ruling"):
        table.add_column(heading)
    for result, claim, ruling in ruled:
        table.add_row(name(result), f"{claim.text} ({claim.source})", ruling)
    console.print(table)


def headline(comparison: Comparison) -> str:
    """The sentence above the table."""
    reference = comparison.reference
    if reference is None:
        return f"{comparison.name}: the reference has no finished round yet"
    return (
        f"{comparison.name}: reference {reference.name} takes {duration(reference.ns_per_unit)} per {comparison.unit} "
        f"(median of {reference.rounds} rounds); time = change against the base, less is faster"
    )


def by_design(comparison: Comparison) -> list[tuple[str, list[EffectResult]]]:
    """Measured effects in the designs' order, fastest first; those without a time come last."""
    designs = list(dict.fromkeys(result.effect.design for result in comparison.effects))
    return [
        (design.replace("_", " "), sorted((r for r in comparison.effects if r.effect.design == design), key=_rank))
        for design in designs
    ]


def terminal_row(result: EffectResult) -> tuple[Any, ...]:
    """One effect as the cells of the terminal's table."""
    verdict = Text(result.word, style=STYLES.get(result.verdict, "dim") if result.verdict else "dim")
    return (
        name(result),
        percent(result.ratio),
        interval(result),
        verdict,
        result.parity_text,
        megabytes(result.memory_bytes),
        compile_text(result),
    )


def footnotes(comparison: Comparison) -> list[str]:
    """Everything else a reader must know to trust the table, one line each."""
    lines = [f"{name(r)}: {r.note}" for r in comparison.effects if r.note]
    lines += [
        f"{name(r)}: its one-off cost is repaid after {r.break_even:,.0f} iterations" for r in comparison.effects if r.break_even
    ]
    lines += [f"{arm.label}: {arm.outcomes}" for arm in comparison.arms if arm.outcomes]
    if any("(" in r.word for r in comparison.effects):
        lines.append("undecided (n): about n rounds would decide, if the estimate stayed")
    return [*lines, *comparison.notes]


def name(result: EffectResult) -> str:
    """Toggle, level, and the toggles that moved along."""
    label = f"{result.effect.toggle}={result.effect.level}" if result.effect.level else result.effect.toggle
    return f"{label} (with {', '.join(result.effect.also)})" if result.effect.also else label


def percent(ratio: float | None) -> str:
    """A ratio of times as a signed change in percent."""
    return "" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


def interval(result: EffectResult) -> str:
    """The interval as two signed changes."""
    if result.low is None or result.high is None:
        return ""
    return f"{(result.low - 1) * 100:+.1f} .. {(result.high - 1) * 100:+.1f}"


def megabytes(value: float | None) -> str:
    """A difference of peak memory; under a tenth of a MiB it is none."""
    if value is None:
        return ""
    return "same" if abs(value) < 0.05 * 2**20 else f"{value / 2**20:+.1f} MB"


def compile_text(result: EffectResult) -> str:
    """Seconds spent compiling in one process."""
    return f"{result.compile_s:.1f} s" if result.compile_s and result.compile_s >= 0.01 else ""


def duration(ns: float) -> str:
    """A time in the unit that reads best."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def write_html(folder: SweepFolder, manifest: Manifest, comparison: Comparison) -> None:
    """Write report.html: one file that opens without a network."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(files("pipelines").joinpath("report.html.j2").read_text())
    text = template.render(
        comparison=comparison,
        headline=headline(comparison).partition(": ")[2].capitalize(),
        groups=[(title, [_html_row(effect) for effect in effects]) for title, effects in by_design(comparison)],
        arms=[_html_arm(arm) for arm in comparison.arms],
        claims=[(name(r), claim, ruling) for r in comparison.effects for claim, ruling in r.rulings],
        footnotes=footnotes(comparison),
        picture=Markup(picture(comparison)),
        command=f"perfsweep compare {folder.path}",
        measure=manifest.sweep.measure,
    )
    write_atomically(folder.report_file, text.encode())


def picture(comparison: Comparison) -> str:
    """Effects with their intervals as an inline plot with its own copy of the library."""
    shown = [r for r in comparison.effects if r.ratio is not None and r.low is not None and r.high is not None]
    if not shown:
        return "<p>No effect has an interval yet.</p>"
    shown.sort(key=lambda r: r.ratio or 0.0, reverse=True)
    several = len({r.effect.design for r in shown}) > 1
    x = [_change(r.ratio) for r in shown]
    bars = go.Scatter(
        x=x,
        y=[f"{name(r)} ({r.effect.design.replace('_', ' ')})" if several else name(r) for r in shown],
        mode="markers",
        marker={"size": 9, "color": ["#2a78d6" if r.parity_ok else "#c0392b" for r in shown]},
        error_x={
            "type": "data",
            "symmetric": False,
            "color": "#8a97a5",  # grey reads on light and on dark pages
            "array": [_change(r.high) - value for r, value in zip(shown, x, strict=True)],
            "arrayminus": [value - _change(r.low) for r, value in zip(shown, x, strict=True)],
        },
        hovertemplate="%{y}: %{x:.1f} %<extra></extra>",
    )
    figure = go.Figure(bars)
    figure.add_vrect(x0=-100 * comparison.margin, x1=100 * comparison.margin, fillcolor="#888888", opacity=0.2, line_width=0)
    figure.add_vline(x=0, line_width=1, line_color="#888888")
    figure.update_layout(
        height=120 + 34 * len(shown),
        margin={"l": 10, "r": 20, "t": 10, "b": 50},
        xaxis_title="change of time, % (95 % interval)",
        yaxis={"automargin": True},
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": "#777777"},
    )
    return plotly.io.to_html(figure, include_plotlyjs=True, full_html=False, config={"displayModeBar": False, "responsive": True})


def _html_row(result: EffectResult) -> dict[str, Any]:
    return {
        "name": name(result),
        "base": result.base_label,
        "time": percent(result.ratio),
        "interval": interval(result),
        "verdict": result.word,
        "css": (result.verdict.name.lower() if result.verdict else "none"),
        "parity": result.parity_text,
        "memory": megabytes(result.memory_bytes),
        "compile": compile_text(result),
        "rounds": result.rounds,
        "method": result.method,
    }


def _html_arm(arm: ArmResult) -> dict[str, Any]:
    return {
        "label": arm.label,
        "time": duration(arm.ns_per_unit) if arm.ns_per_unit else "",
        "rounds": arm.rounds,
        "memory": f"{arm.peak_bytes / 2**20:.0f} MB" if arm.peak_bytes else "",
        "outcomes": arm.outcomes,
    }


def _change(ratio: float | None) -> float:
    return math.nan if ratio is None else (ratio - 1) * 100


def _rank(result: EffectResult) -> tuple[bool, float]:
    return (result.ratio is None, result.ratio or 0.0)
