"""Effects -> Markdown: the same answer as a text that can be committed, with what it takes to reproduce
it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from pipelines import units
from pipelines.analysis.compare import ArmResult, Comparison
from pipelines.analysis.judge import EffectResult
from pipelines.analysis.outcomes import in_words
from pipelines.report import wording
from pipelines.report.profile_links import Linked, links
from pipelines.store.files import write_atomically
from pipelines.store.provenance import Provenance
from pipelines.store.records import SweepFolder
from workloads.api import Claim


def write_markdown(folder: SweepFolder, comparison: Comparison, provenance: Provenance) -> None:
    """Write report.md."""
    parts = [f"# {comparison.name}", wording.headline(comparison).partition(": ")[2].capitalize() + "."]
    parts.append("\n".join(f"- {line}" for line in wording.answer(comparison)))
    for title, effects in wording.by_design(comparison):
        parts += [f"## Effects: {title}", _effects(comparison, effects)]
    if comparison.corners:
        parts += [
            "## Two toggles at a time",
            _table(wording.CORNERS, map(wording.corners_row, comparison.corners)),
        ]
    if comparison.together:
        parts += [
            "## Alone and beside the others",
            _table(wording.TOGETHER, map(wording.together_row, comparison.together)),
        ]
    if comparison.quality:
        parts += ["## Against the oracle", _quality(comparison)]
    parts += ["## Arms", _arms(comparison)]
    claims = [
        (
            wording.subject(comparison, one),
            f"{one.claim.text} ({_place(one.claim)})",
            wording.ruling_text(one),
        )
        for one in comparison.rulings
    ]
    if claims:
        parts += ["## Claims", _table(("about", "claim", "ruling"), claims)]
    if profiled := links(folder):
        parts += [
            "## Profiles",
            _table(
                ("arm", "tool and slice", "most of the time", "cost of looking", "files"),
                map(_profile, profiled),
            ),
        ]
    if notes := wording.footnotes(comparison):
        parts += ["## Notes", "\n".join(f"- {note}" for note in notes)]
    parts += ["## Where this comes from", _provenance(provenance)]
    write_atomically(folder.markdown_file, ("\n\n".join(parts) + "\n").encode())


def _profile(one: Linked) -> tuple[str, ...]:
    files = ", ".join(f"[{name}]({quote(address)})" for name, address in one.files)
    return (one.arm, one.what, one.most, one.cost, files)


def _place(claim: Claim) -> str:
    return f"{claim.source}, {claim.section}"


def _effects(comparison: Comparison, effects: Sequence[EffectResult]) -> str:
    heading = (
        "toggle",
        "base",
        "time",
        "95 % interval",
        "CPU time",
        "verdict",
        "results",
        "memory",
        "compile, cold",
        "warm",
        "rounds",
    )
    rows = [(*_effect_row(result), wording.trials_text(comparison, result)) for result in effects]
    return _table((*heading, "trials"), rows)


def _effect_row(result: EffectResult) -> tuple[Any, ...]:
    return (
        wording.name(result),
        result.base_label,
        wording.percent(result.ratio),
        wording.interval(result),
        wording.cpu_text(result),
        result.word,
        result.parity_text,
        wording.megabytes(result.memory_bytes),
        wording.compile_text(result),
        wording.warm_compile_text(result),
        result.rounds or "",
    )


def _quality(comparison: Comparison) -> str:
    rows = []
    for row in comparison.quality:
        figures = {figure.check: figure for figure in row.figures}
        cells = [figures.get(check) for check in wording.quality_checks(comparison)]
        rows.append((row.arm, *(_figure(cell) for cell in cells)))
    return _table(("arm", *wording.quality_headings(comparison)), rows)


def _arms(comparison: Comparison) -> str:
    shown = wording.shows_mfu(comparison)
    heading = (
        "arm",
        f"time per {comparison.unit}",
        "median iteration",
        f"phases, per {comparison.unit}",
        "peak memory",
        *(("MFU",) if shown else ()),
        "trials",
    )
    return _table(heading, [_arm_row(arm, shown) for arm in comparison.arms])


def _arm_row(arm: ArmResult, with_mfu: bool) -> tuple[Any, ...]:
    return (
        arm.name or arm.label,
        units.duration(arm.ns_per_unit) if arm.ns_per_unit else "",
        units.duration(arm.iteration_ns) if arm.iteration_ns else "",
        wording.phases_text(arm),
        f"{arm.peak_bytes / 2**20:.0f} MB" if arm.peak_bytes else "",
        *((wording.mfu_text(arm),) if with_mfu else ()),
        in_words(arm.outcomes),
    )


def _figure(figure: Any) -> str:
    if figure is None:
        return ""
    return f"{figure.value:.2g}" if figure.holds else f"**{figure.value:.2g}**"


def _provenance(found: Provenance) -> str:
    lines = [f"- command: `{found.command}`", f"- commit: {found.commit}", f"- versions: {found.versions}"]
    return "\n".join(
        [
            *lines,
            f"- machine: {found.machine}",
            *(f"- not the same in all trials: {line}" for line in found.differing),
        ]
    )


def _table(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
