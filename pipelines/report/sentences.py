"""What a comparison says in words: its headline, what follows from it, open questions, and notes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping

from perfsweep.pipelines.analysis.arm_records import outcome_text
from perfsweep.pipelines.analysis.combinations import Part, Together
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import (
    SHOWN_ROUNDS,
    EffectResult,
    ToDo,
    adds_nothing,
    by_todo,
    counts,
    effect_name,
    size,
    speed_text,
    todo,
)
from perfsweep.pipelines.analysis.failed_trials import remedies
from perfsweep.pipelines.config.overrides import as_overrides
from perfsweep.pipelines.report.tables import design_title, has_several_designs, lacks_baseline
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.schema import Outcome
from perfsweep.pipelines.terminal import shell_line
from perfsweep.pipelines.units import duration, few, speed


def headline(comparison: Comparison) -> str:
    """The sentence above the tables: rounds, machine, and what the baseline takes."""
    reference = comparison.reference
    if reference is None:
        return "no baseline has a finished round yet"
    machine = f" on {comparison.machine}" if comparison.machine else ""
    rounds = f"{reference.rounds} round{'' if reference.rounds == 1 else 's'}"
    packs = f" in {reference.packs} packs" if reference.packs > 1 else ""
    return (
        f"{rounds}{packs}{machine}; baseline {reference.name}: {duration(reference.ns_per_unit)} per"
        f" {comparison.unit}"
    )


def opening(comparison: Comparison) -> str:
    """The headline as a sentence of its own."""
    words = headline(comparison)
    return f"{words[0].upper()}{words[1:]}."


COMMANDS = ("Use it", "Next")
"""Conclusions that are copied into a shell, so that no line break may split them."""


def conclusions(comparison: Comparison) -> list[tuple[str, str]]:
    """What follows from the tables, a label and a sentence each: what to use, what that gains, and why."""
    found = (
        *_together(comparison),
        ("Use it", use(comparison)),
        ("In code", _in_code(comparison)),
        ("Why", _why(comparison)),
        *((one.name.capitalize(), _no_part(one)) for one in comparison.parts),
        *_without_extras(comparison),
        ("Oracle", _oracle(comparison)),
        ("Next", _next(comparison)),
    )
    return [(label, text) for label, text in found if text]


def recommended(comparison: Comparison) -> EffectResult | None:
    """The arm to use: all winners at once where that is measured and good, else the fastest arm.

    The last steps are left out if each is shown to add nothing and the rest is measured and good.
    """
    return _used(comparison)[0]


def _used(comparison: Comparison) -> tuple[EffectResult | None, int]:
    """The arm to use, and how many of its levels are steps of the stack: none where the stack is not used.

    The stack is measured in a second sweep, with the winners in it: an arm of the first one goes before it
    only where it is no winner, and their intervals are apart.
    """
    own = comparison.fastest
    if found := comparison.together:
        gaining = [n for n, step in enumerate(found.steps, 1) if not adds_nothing(step, comparison.margin)]
        last = max(gaining, default=1)
        part = dict(enumerate(found.parts, 1)).get(last)
        for arm, steps in ((part, last), (found.whole, len(found.steps))):
            if arm and todo(arm) is ToDo.TURN_ON:
                apart = own and own.high and arm.low and own.high < arm.low
                return (own, 0) if apart and own not in comparison.winners else (arm, steps)
    return own, 0


def _together(comparison: Comparison) -> list[tuple[str, str]]:
    found = comparison.together
    if found is None:
        return [("All winners together", _not_together(comparison))]
    steps = (f"{effect_name(step)} {_step(step, comparison.margin)}" for step in found.steps)
    return [
        ("All winners together", _measured(found.whole)),
        ("Step by step", ", then ".join(steps)),
        *_used_steps(comparison, found),
    ]


def _measured(result: EffectResult) -> str:
    """The speed with its interval, and what became of the results."""
    known = counts(result) and result.parity_text
    return size(result) + (f", results {result.parity_text}" if known else "")


def _used_steps(comparison: Comparison, found: Together) -> list[tuple[str, str]]:
    """Which steps that add nothing are left out of the arm to use, and which are not, and why."""
    arm, used = _used(comparison)
    out = [effect_name(step) for step in found.steps[used:]] if used else []
    idle = [effect_name(step) for step in found.steps[:used] if adds_nothing(step, comparison.margin)]
    add, it = ("adds", "it") if len(idle) == 1 else ("add", "them")
    return [
        ("Left out", f"{', '.join(out)}; the rest is {_measured(arm)}" if arm and out else ""),
        (
            "Kept",
            f"{', '.join(idle)} {add} nothing, but the rest was not measured without {it}" if idle else "",
        ),
    ]


def _step(step: EffectResult, margin: float) -> str:
    nothing = adds_nothing(step, margin)
    if step.ratio is None:
        return "adds nothing" if nothing else f"is not measured ({step.word})"
    if nothing and step.verdict is not Verdict.SLOWER:
        return f"adds nothing ({speed_text(step)})"
    settled = step.verdict in (Verdict.FASTER, Verdict.SLOWER, Verdict.DIFFERENT, Verdict.FEWER_UNITS)
    return speed_text(step) if settled else f"adds nothing that is certain ({speed_text(step)})"


def _not_together(comparison: Comparison) -> str:
    if len(comparison.winners) < 2:
        return ""
    return "not measured yet; the command of this sweep measures them after it"


def command_words(comparison: Comparison) -> list[str]:
    """The workload and its options, as a command line has them."""
    return as_overrides("run", {"workload": {"name": comparison.workload, **comparison.options}})


def use(comparison: Comparison, arm: EffectResult | None = None) -> str:
    """The command that runs an arm, by default the recommended one; "" where nothing is faster."""
    best = arm or recommended(comparison)
    if best is None or not comparison.workload:
        return ""
    words = (f"toggles.{name}={level}" for name, level in level_texts(best).items())
    return shell_line("run", *command_words(comparison), *words)


def _in_code(comparison: Comparison) -> str:
    """What to change in a program, of each level to use that says it."""
    best = recommended(comparison)
    texts = level_texts(best) if best else {}
    found = (comparison.in_code.get(name, {}).get(text) for name, text in texts.items())
    return "; ".join(filter(None, found))


def level_texts(result: EffectResult) -> dict[str, str]:
    """The levels of an effect's arm that are off their baseline, as its label has them."""
    label = "" if result.arm_label == "baseline" else result.arm_label
    words = (word.partition("=") for word in re.split(r",(?=[\w.]+=)", label) if word)
    return {name: text for name, _, text in words}


MOST_OF_A_GAIN = 0.1
"""Part of the baseline's time that a phase must save to be named as the reason."""

NEXT_TO_NOTHING = 0.001
"""Part of the baseline's time that is no time: what a phase takes that is entered and has nothing to do."""


def _why(comparison: Comparison) -> str:
    """The phase that the fastest arm saves most of, in the time of a unit."""
    best, reference = comparison.fastest, comparison.reference
    arms = {arm.id: arm for arm in comparison.arms}
    if best is None or reference is None:
        return ""
    own, base = (arms.get(name) for name in best.effect.pairs[0])
    if own is None or base is None or not base.ns_per_unit:
        return ""
    left = {share.phase: share.ns_per_unit for share in own.phases}
    saved = {share.phase: share.ns_per_unit - left.get(share.phase, 0.0) for share in base.phases}
    phase = max(saved, key=lambda name: saved[name], default="")
    if not phase or saved[phase] < MOST_OF_A_GAIN * base.ns_per_unit:
        return ""
    before = next(share.ns_per_unit for share in base.phases if share.phase == phase)
    some = left.get(phase, 0.0) > NEXT_TO_NOTHING * base.ns_per_unit
    after = duration(left[phase]) if some else "none"
    return (
        f"{base.name or base.label} spends {duration(before)} of {duration(base.ns_per_unit)} in {phase},"
        f" {own.name or effect_name(best)} {after}"
    )


def _no_part(part: Part) -> str:
    """Why gains are not told apart by a step from one baseline to another; empty where they are."""
    if part.gains or part.step is None:
        return ""
    if part.step.outcome == Outcome.UNSUPPORTED:
        return f"no part of these gains, which are all method: {part.end} cannot act here"
    return f"not told apart from the method: {part.step.note or part.step.word}"


def _without_extras(comparison: Comparison) -> list[tuple[str, str]]:
    """What a unit takes each arm without phases that some leave out, and the speed against the baseline."""
    times_ns = {arm.name: arm.lean_ns for arm in comparison.arms if arm.lean_ns}
    phases = dict.fromkeys(phase for arm in comparison.arms for phase in arm.extra_phases)
    base = comparison.reference.name if comparison.reference else ""
    if not phases or base not in times_ns:
        return []
    each = (
        f"{name} {duration(ns)} ({speed(ns / times_ns[base])})"
        for name, ns in times_ns.items()
        if name != base
    )
    texts = [f"{base} {duration(times_ns[base])} per {comparison.unit}", *each]
    return [(f"Without {' and '.join(phases)}", ", ".join(texts))]


def _oracle(comparison: Comparison) -> str:
    """In one sentence which arms keep to the limits of the workload's oracle."""
    broken = {row.arm: [one for one in row.deviations if not one.holds] for row in comparison.quality}
    if not broken:
        return ""
    failing = [arm for arm, checks in broken.items() if checks]
    if not failing:
        arms = "the arm is" if len(broken) == 1 else f"all {len(broken)} arms are"
        return f"{arms} within its limits"
    good = [arm for arm in broken if arm not in failing]
    if comparison.reference and comparison.reference.name in failing:
        meet = f"; {few(good)} {'meets' if len(good) == 1 else 'meet'} them" if good else ""
        return f"! {comparison.reference.name}, the baseline, misses its limits{meet}"
    miss = "misses" if len(failing) == 1 else "miss"
    return f"! {few(failing)} {miss} its limits; the table below says by how much"


MOST_TUNED = 8
"""Toggles that a search takes at once."""


def _next(comparison: Comparison) -> str:
    """The command that goes on from here: a search among the levels that gain, or may gain."""
    alone = [one for one in by_todo(comparison.effects) if one.effect.design == "one_at_a_time"]
    open_ones = [one.effect.toggle for one in alone if todo(one) in (ToDo.TURN_ON, ToDo.UNDECIDED)]
    toggles = list(dict.fromkeys(open_ones))[:MOST_TUNED]
    if not comparison.workload or len(toggles) < 2:
        return ""
    words = command_words(comparison)
    # None: what a workload names to be searched by default would be added to these, up to being refused.
    return shell_line("tune", *words, "tune=none", f"tune.toggles=[{','.join(toggles)}]")


ANSWERED = (ToDo.UNDECIDED, ToDo.TOO_NOISY, ToDo.NOT_HERE, ToDo.NO_TIME)
"""Groups whose notes are among the open questions."""


def open_questions(comparison: Comparison) -> list[str]:
    """Say of each effect without an answer why there is none, and what it would take."""
    said: dict[str, list[str]] = {}
    names = _names(comparison)
    for result in by_todo(comparison.effects):
        if todo(result) in ANSWERED and not lacks_baseline(result) and (why := _why_open(comparison, result)):
            said.setdefault(why, []).append(names[result.effect.id])
    in_a_table = {one.exception.partition(": ")[2] for one in comparison.failures}
    return [f"{few(list(dict.fromkeys(own)))}: {why}" for why, own in said.items() if why not in in_a_table]


def _names(comparison: Comparison) -> Mapping[str, str]:
    """What a sentence calls each effect, by its id: with its base or design where others share its name."""
    several = has_several_designs(comparison)
    shared = Counter((r.effect.design, effect_name(r)) for r in comparison.effects)
    return {r.effect.id: _full_name(r, several, shared) for r in comparison.effects}


def _full_name(result: EffectResult, several: bool, shared: Mapping[tuple[str, str], int]) -> str:
    design, name = result.effect.design, effect_name(result)
    base = f" against {result.base_label}" if shared[design, name] > 1 else ""
    return f"{name}{base}" + (f" ({design_title(design)})" if several else "")


_UNDECIDED = {
    ReasonCode.HOLM_NOT_REJECTED: "not certain as one of {comparisons} comparisons",
    ReasonCode.REACHES_INTO_MARGIN: "there is an effect, and it may be smaller than {margin:g} %",
    ReasonCode.BELOW_PLACEBO_FLOOR: "the effect is no larger than what copies of the baseline show",
}


def _why_open(comparison: Comparison, result: EffectResult) -> str:
    note = result.note.removeprefix(f"{effect_name(result)}: ")
    if todo(result) is not ToDo.UNDECIDED:
        return note
    return "; ".join(filter(None, [_what_is_open(comparison, result), note])) or "too few rounds"


def _what_is_open(comparison: Comparison, result: EffectResult) -> str:
    compared = result.derivation.comparisons if result.derivation else len(comparison.effects)
    code = ReasonCode.HOLM_NOT_REJECTED if _clear_alone(comparison, result) else result.code
    words = _UNDECIDED.get(code, _hidden(result)).format(comparisons=compared, margin=comparison.margin * 100)
    worth = result.rounds_needed is not None and result.rounds_needed < SHOWN_ROUNDS
    more = f"about {result.rounds_needed} rounds would decide" if worth else ""
    return "; ".join(filter(None, [words, more]))


def _clear_alone(comparison: Comparison, result: EffectResult) -> bool:
    """Whether its interval alone would decide: the correction for the number of comparisons keeps it open."""
    if result.low is None or result.high is None or result.code is ReasonCode.BELOW_PLACEBO_FLOOR:
        return False
    return result.high < 1 / (1 + comparison.margin) or result.low > 1 + comparison.margin


WIDE = 0.2
"""An effect that may be larger than this is open both ways: saying that none above is left says nothing."""


def _hidden(result: EffectResult) -> str:
    """The largest effect that the interval still allows."""
    if result.low is None or result.high is None:
        return ""
    most = max(1 / result.low, result.high) - 1
    if most > WIDE:
        return f"anything from {speed(result.low)} to {speed(result.high)} is possible"
    return f"no effect above {most:.1%} is left to find"


def footnotes(comparison: Comparison) -> list[str]:
    """Everything else a reader must know to trust the tables, one line each."""
    noted: dict[str, list[str]] = {}
    for result in comparison.effects:
        if result.note and todo(result) not in ANSWERED:
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
    return [*comparison.missing, *remedies(comparison.failures), *lines, *comparison.notes]
