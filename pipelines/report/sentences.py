"""What a comparison says in words: its headline, its answer, and the notes below the tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container

from perfsweep.pipelines.analysis.arm_records import outcome_text
from perfsweep.pipelines.analysis.combinations import BETWEEN
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_columns import effect_name
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.report.tables import design_title, fastest_first, has_several_designs
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.units import duration, percent


def headline(comparison: Comparison) -> str:
    """The sentence above the tables."""
    reference = comparison.reference
    if reference is None:
        return "no reference has a finished round yet"
    return (
        f"reference {reference.name} takes {duration(reference.ns_per_unit)} per {comparison.unit}"
        f" (median of {reference.rounds} rounds); time = change against the base, less is faster"
    )


def opening(comparison: Comparison) -> str:
    """The headline as a sentence of its own."""
    words = headline(comparison)
    return f"{words[0].upper()}{words[1:]}."


NAMED = 5
"""Toggles that the answer names in a sentence; the table has the rest."""

_FASTER, _SLOWER = "faster, with the same results", "slower"
_CHANGED = "changes results, so its time does not count"
_FEWER = "does less work, so its time does not count"
_LIKE, _OPEN, _NONE = "no difference", "not decided by this many rounds", "no time"
_HELD = "held back: nothing is said, and the notes say why"
_UNCHECKED = "faster, results unchecked"
_MORE, _LESS = "less time together than apart lets expect", "more time together than apart lets expect"
_KINDS = (_FASTER, _UNCHECKED, _SLOWER, _MORE, _LESS, _CHANGED, _FEWER, _LIKE, _OPEN, _HELD, _NONE)


def answer(comparison: Comparison) -> list[str]:
    """Sum the sweep up in words: one line for each kind of verdict that occurs."""
    kinds: dict[str, list[EffectResult]] = {}
    for result in fastest_first(comparison.effects):
        kinds.setdefault(_kind(result), []).append(result)
    several = has_several_designs(comparison)
    shared = Counter((r.effect.design, effect_name(r)) for r in comparison.effects)
    ambiguous = {name for (_, name), count in shared.items() if count > 1}
    return [f"{kind}: {_list(kinds[kind], several, ambiguous)}" for kind in _KINDS if kind in kinds]


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
        case Verdict.FEWER_UNITS:
            return _FEWER
        case Verdict.NO_DIFFERENCE:
            return _LIKE
        case Verdict.HELD_BACK:
            return _HELD
    return _OPEN


def _list(results: list[EffectResult], several: bool, ambiguous: Container[str]) -> str:
    """Name effects with their sizes, those that share a name with their bases too."""
    named = []
    for result in results[:NAMED]:
        size = percent(result.ratio) if result.verdict and not result.outcome else result.word
        design = f", {design_title(result.effect.design)}" if several else ""
        name = effect_name(result)
        base = f" against {result.base_label}" if name in ambiguous else ""
        named.append(f"{name}{base} ({size}{design})")
    more = f", and {len(results) - NAMED} more" if len(results) > NAMED else ""
    return ", ".join(named) + more


def footnotes(comparison: Comparison) -> list[str]:
    """Everything else a reader must know to trust the tables, one line each."""
    noted: dict[str, list[str]] = {}
    for result in comparison.effects:
        if result.note:
            name = effect_name(result)
            noted.setdefault(result.note.removeprefix(f"{name}: "), []).append(name)
    lines = [f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in noted.items()]
    lines += [
        f"{effect_name(r)}: its one-off cost is repaid after {math.ceil(r.break_even):,} iterations"
        for r in comparison.effects
        if r.break_even and r.break_even > 1
    ]
    lost = [arm for arm in comparison.arms if set(arm.outcomes) - {"ok", "unsupported"}]
    lines += [f"{arm.label}: {outcome_text(arm.outcomes)} trials" for arm in lost]
    if any("(" in r.word for r in comparison.effects):
        lines.append("undecided (n): about n rounds would decide, if the estimate stayed")
    return [*comparison.missing, *lines, *comparison.notes]
