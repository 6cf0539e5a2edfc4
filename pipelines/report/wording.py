"""Effects -> words and the terminal. Shows what compare found; decides nothing."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipelines.analysis.combinations import BETWEEN, Corners
from pipelines.analysis.compare import ArmResult, Comparison
from pipelines.analysis.judge import EffectResult
from pipelines.analysis.outcomes import in_words
from pipelines.analysis.rulings import RuledClaim
from pipelines.analysis.together import Together
from pipelines.statistics.verdicts import Verdict
from pipelines.store.schema import AA
from pipelines.units import duration

STYLES = {
    Verdict.FASTER: "green",
    Verdict.SLOWER: "red",
    Verdict.NO_DIFFERENCE: "dim",
    Verdict.UNDECIDED: "yellow",
    Verdict.DIFFERENT: "bold red",
}


WHOLE_NAME = 24
"""Characters of a toggle's name that a terminal shows on one line, at the cost of other columns."""


def show(console: Console, comparison: Comparison) -> None:
    """Print the table of effects and what stands beside it; readable at 100 columns."""
    console.print(f"\n{headline(comparison)}", highlight=False)
    for line in answer(comparison):
        console.print(f"- {line}", highlight=False)
    for title, effects in by_design(comparison):
        table = Table(
            title=f"\n{title}",
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        trials = [_short_trials(comparison, effect) for effect in effects]
        lost = any(not text.isdigit() for text in trials)
        longest = max((len(terminal_row(effect)[0]) for effect in effects), default=0)
        table.add_column("toggle", min_width=min(longest, WHOLE_NAME), overflow="fold")
        for heading in ("time", "95 % interval"):
            table.add_column(heading, justify="right", no_wrap=True)
        for heading in ("verdict", "results"):
            table.add_column(heading)
        for heading in ("memory", "compile"):
            table.add_column(heading, justify="right", no_wrap=True)
        warm = any(warm_compile_text(effect) for effect in effects)
        if warm:
            table.add_column("warm", justify="right", no_wrap=True)
        if lost:
            table.add_column("trials", overflow="fold", max_width=9)
        for effect, text in zip(effects, trials, strict=True):
            table.add_row(
                *terminal_row(effect),
                *([warm_compile_text(effect)] if warm else []),
                *([text] if lost else []),
            )
        console.print(table)
    _show_together(console, comparison)
    _show_quality(console, comparison)
    _show_claims(console, comparison)
    for line in footnotes(comparison):
        console.print(f"- {line}", highlight=False)


def _show_together(console: Console, comparison: Comparison) -> None:
    if not comparison.together:
        return
    table = Table(
        title="\nalone and beside the others", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for heading, justify in zip(TOGETHER, ("left", "right", "left", "right", "left", "left"), strict=True):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]  # rich's own literal
    for one in comparison.together:
        table.add_row(*together_row(one))
    console.print(table)


TOGETHER = ("toggle", "alone", "verdict", "beside the others", "verdict", "so it")
"""Headings of one-at-a-time beside leave-one-out; the second is what leaving the toggle out would lose."""


def together_row(one: Together) -> tuple[str, ...]:
    """A level by itself and beside the others, with what both verdicts say together."""
    alone = (percent(one.alone.ratio), one.alone.word) if one.alone else ("", "not measured alone")
    return (name(one.beside), *alone, percent(one.beside.ratio), one.beside.word, one.reading)


CORNERS = ("toggles", "the first alone", "the second alone", "both", "expected of both")
"""Headings of the corners of interactions; times are against the arm with neither."""


def corners_row(found: Corners) -> tuple[str, ...]:
    """What two toggles cost apart and together, against neither."""
    names = " x ".join(f"{toggle}={level}" for toggle, level in zip(found.toggles, found.high, strict=True))
    return (names, *(percent(ratio) for ratio in (found.first, found.second, found.both, found.expected)))


def _show_claims(console: Console, comparison: Comparison) -> None:
    if not comparison.rulings:
        return
    table = Table(title="\nclaims", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("about", "claim", "ruling"):
        table.add_column(heading)
    for one in comparison.rulings:
        table.add_row(subject(comparison, one), f"{one.claim.text} ({one.claim.source})", ruling_text(one))
    console.print(table)


def subject(comparison: Comparison, one: RuledClaim) -> str:
    """What a claim was ruled on: the levels, and the design where there are several."""
    return (
        f"{one.subject} ({one.design.replace('_', ' ')})" if has_several_designs(comparison) else one.subject
    )


def ruling_text(one: RuledClaim) -> str:
    """The ruling with what it rests on: the reason there is none, or the figure of a predicate."""
    if one.reason:
        return f"{one.ruling}: {one.reason}"
    return f"{one.ruling} ({one.claim.figure} {one.value:.6g})" if one.value is not None else one.ruling


def _show_quality(console: Console, comparison: Comparison) -> None:
    if not comparison.quality:
        return
    table = Table(title="\nagainst the oracle", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", overflow="fold", min_width=WHOLE_NAME)
    for heading in quality_headings(comparison):
        table.add_column(heading.replace(" <= ", "\n<= "), justify="right")
    for row in comparison.quality:
        cells = {
            figure.check: Text(f"{figure.value:.2g}", style="" if figure.holds else "bold red")
            for figure in row.figures
        }
        table.add_row(
            row.arm.replace(",", ", "), *(cells.get(check, "") for check in quality_checks(comparison))
        )
    console.print(table)


def quality_checks(comparison: Comparison) -> list[str]:
    """Names of the oracle checks that any arm has a figure of."""
    return list(dict.fromkeys(figure.check for row in comparison.quality for figure in row.figures))


def quality_headings(comparison: Comparison) -> list[str]:
    """One heading for each oracle check, with the bound it is held to."""
    bounds = {figure.check: figure.bound for row in comparison.quality for figure in row.figures}
    return [f"{check.replace('_', ' ')} <= {bounds[check]:.2g}" for check in quality_checks(comparison)]


def headline(comparison: Comparison) -> str:
    """The sentence above the table."""
    reference = comparison.reference
    if reference is None:
        return f"{comparison.name}: no reference has a finished round yet"
    return (
        f"{comparison.name}: reference {reference.name} takes {duration(reference.ns_per_unit)} per"
        f" {comparison.unit} (median of {reference.rounds} rounds); time = change against the base, less is"
        " faster"
    )


NAMED = 5
"""Toggles that the answer names in a sentence; the table has the rest."""


def answer(comparison: Comparison) -> list[str]:
    """What the sweep found, in words: one line for each kind of verdict that occurs."""
    kinds: dict[str, list[EffectResult]] = {}
    for result in sorted(comparison.effects, key=_rank):
        kinds.setdefault(_kind(result), []).append(result)
    several = has_several_designs(comparison)
    return [f"{kind}: {_listed(kinds[kind], several)}" for kind in _KINDS if kind in kinds]


def has_several_designs(comparison: Comparison) -> bool:
    """Whether one level may stand in several tables, so that a line about it has to say which is meant."""
    return len({result.effect.design for result in comparison.effects} - {AA}) > 1


def in_design(result: EffectResult) -> str:
    """An effect with the design that it comes from."""
    return f"{name(result)} ({result.effect.design.replace('_', ' ')})"


_FASTER, _SLOWER, _CHANGED = (
    "faster, with the same results",
    "slower",
    "changes results, so its time does not count",
)
_LIKE, _OPEN, _NONE = "no difference", "not decided by this many rounds", "no time"
_UNCHECKED = "faster, results unchecked"
_MORE, _LESS = "less time together than apart lets expect", "more time together than apart lets expect"
_KINDS = (_FASTER, _UNCHECKED, _SLOWER, _MORE, _LESS, _CHANGED, _LIKE, _OPEN, _NONE)


def _kind(result: EffectResult) -> str:
    if result.outcome or result.verdict is None:
        return _NONE
    match result.verdict:
        case Verdict.FASTER | Verdict.SLOWER if BETWEEN in result.effect.toggle:
            return _MORE if result.verdict is Verdict.FASTER else _LESS
        case Verdict.FASTER:
            return _FASTER if result.parity_ok else _UNCHECKED
        case Verdict.SLOWER:
            return _SLOWER
        case Verdict.DIFFERENT:
            return _CHANGED
        case Verdict.NO_DIFFERENCE:
            return _LIKE
    return _OPEN


def _listed(results: list[EffectResult], several: bool) -> str:
    named = []
    for result in results[:NAMED]:
        size = percent(result.ratio) if result.verdict and not result.outcome else result.word
        design = f", {result.effect.design.replace('_', ' ')}" if several else ""
        named.append(f"{name(result)} ({size}{design})")
    more = f", and {len(results) - NAMED} more" if len(results) > NAMED else ""
    return ", ".join(named) + more


def by_design(comparison: Comparison) -> list[tuple[str, list[EffectResult]]]:
    """Measured effects in the designs' order, fastest first; those without a time come last."""
    designs = list(dict.fromkeys(result.effect.design for result in comparison.effects))
    return [
        (
            design.replace("_", " "),
            sorted((r for r in comparison.effects if r.effect.design == design), key=_rank),
        )
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


def trials_text(comparison: Comparison, result: EffectResult) -> str:
    """How the trials behind an effect ended, of every kind and attempt."""
    return in_words(comparison.trials.get(result.effect.id, {}))


def _short_trials(comparison: Comparison, result: EffectResult) -> str:
    """A number alone where all trials ended in one way, which is what the verdict says or lets expect."""
    counts = comparison.trials.get(result.effect.id, {})
    if len(counts) == 1:
        return str(next(iter(counts.values())))
    return in_words(counts).replace(", ", "\n")


def footnotes(comparison: Comparison) -> list[str]:
    """Everything else a reader must know to trust the table, one line each."""
    noted = [(f"{name(r)}: ", r.note) for r in comparison.effects if r.note]
    lines = [arm + note.removeprefix(arm) for arm, note in noted]
    lines += [
        f"{name(r)}: its one-off cost is repaid after {r.break_even:,.0f} iterations"
        for r in comparison.effects
        if r.break_even
    ]
    lost = [arm for arm in comparison.arms if set(arm.outcomes) - {"ok", "unsupported"}]
    lines += [f"{arm.label}: {in_words(arm.outcomes)} trials" for arm in lost]
    if any("(" in r.word for r in comparison.effects):
        lines.append("undecided (n): about n rounds would decide, if the estimate stayed")
    return [*lines, *comparison.notes]


def name(result: EffectResult) -> str:
    """Toggle, level, and the toggles that moved along."""
    effect = result.effect
    # Listed arms carry their own name and the reference's ("vs late") instead of a toggle and its level.
    joint = " " if effect.design == "arms" else "="
    label = f"{effect.toggle}{joint}{effect.level}" if effect.level else effect.toggle
    return f"{label} (with {', '.join(result.effect.also)})" if result.effect.also else label


FACTOR = 2.0
"""From this ratio on, either way, a change reads better as a factor than in percent."""


def percent(ratio: float | None) -> str:
    """A ratio of times as a signed change in percent, or as a factor where it is large."""
    if ratio is None:
        return ""
    return (
        _factor(ratio) + (" less" if ratio < 1 else " more")
        if is_large(ratio)
        else f"{(ratio - 1) * 100:+.1f} %"
    )


def is_large(ratio: float) -> bool:
    """Whether a ratio of times is shown as a factor."""
    return not 1 / FACTOR < ratio < FACTOR


def _factor(ratio: float) -> str:
    return f"{max(ratio, 1 / ratio):.3g}x"


def interval(result: EffectResult) -> str:
    """The interval in the same form as the change itself."""
    return bounds_text(result.ratio, result.low, result.high)


def bounds_text(ratio: float | None, low: float | None, high: float | None) -> str:
    """Two ends of an interval, as factors where the ratio is shown as one."""
    if ratio is None or low is None or high is None:
        return ""
    if not is_large(ratio):
        return f"{(low - 1) * 100:+.1f} .. {(high - 1) * 100:+.1f}"
    ends = (1 / high, 1 / low) if ratio < 1 else (low, high)
    return " .. ".join(f"{end:.3g}x" for end in ends)


def cpu_text(result: EffectResult) -> str:
    """The effect in process CPU time with its interval."""
    return f"{percent(result.cpu[0])} ({bounds_text(*result.cpu)})" if result.cpu else ""


def megabytes(value: float | None) -> str:
    """A difference of peak memory; under a tenth of a MiB it is none."""
    if value is None:
        return ""
    return "same" if abs(value) < 0.05 * 2**20 else f"{value / 2**20:+.1f} MB"


def compile_text(result: EffectResult) -> str:
    """Seconds of compiling in one process with nothing compiled yet."""
    return f"{result.compile_s:.1f} s" if result.compile_s and result.compile_s >= 0.01 else ""


def warm_compile_text(result: EffectResult) -> str:
    """Seconds of compiling in a process that finds on disk what the sweep compiled; nothing where the arm
    compiles nothing."""
    return (
        f"{result.warm_compile_s:.1f} s" if compile_text(result) and result.warm_compile_s is not None else ""
    )


SHOWN_PHASES = 6


def phases_text(arm: ArmResult) -> str:
    """The longest phases with their time per unit; those under a hundredth of the whole are left out."""
    least = (arm.ns_per_unit or 0.0) / 100
    shown = [share for share in arm.phases if share.ns_per_unit >= least][:SHOWN_PHASES]
    return ", ".join(
        f"{share.phase} {duration(share.ns_per_unit)}{' (device)' * (share.on == 'device')}"
        for share in shown
    )


def shows_mfu(comparison: Comparison) -> bool:
    """Whether the share of the device's peak is known for any arm."""
    return any(arm.mfu is not None for arm in comparison.arms)


def mfu_text(arm: ArmResult) -> str:
    """Share of the device's peak that the formula work takes."""
    return "" if arm.mfu is None else f"{arm.mfu:.1%}"


def _rank(result: EffectResult) -> tuple[bool, float]:
    return (result.ratio is None, result.ratio or 0.0)
