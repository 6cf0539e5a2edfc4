"""Rules that a workload must keep, in the words of its author. Nothing runs here."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from perfsweep.pipelines.analysis.arm_records import NOISY, counter_changes
from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.store.trial_schema import FOUND_ON_DISK
from perfsweep.workloads.api import Check, Evidence, Level, Parity
from perfsweep.workloads.declarations import ANYTHING

Counters = Mapping[str, float | None]


class Defect(StrEnum):
    """What can be wrong with a workload; the value is the heading it is told under."""

    FAILS = "it fails"
    NOT_REPEATABLE = "not repeatable"
    NO_EVIDENCE = "evidence missing"
    STATE_LEAKS = "state leaks between trials"
    HOST_READS = "host reads inside the step"
    NOTHING_CHANGES = "a toggle that changes nothing"
    DATA_CHANGE = "a toggle that changes which data it is"
    RESULTS_CHANGE = "a toggle that changes results beyond its class"


@dataclass(frozen=True)
class Finding:
    """One defect: `subject` is the workload's name or a level, `text` says what was seen and what to do."""

    defect: Defect
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.defect.value}: {self.subject}: {self.text}"


def not_repeatable(
    name: str, checks: Sequence[Check], runs: Sequence[Evidence], early: Sequence[Evidence]
) -> list[Finding]:
    """Compare evidence of an arm and seed: `runs` are the first, one on its cache, one on its own cache.

    `early` are two runs of a single iteration, which tell set-up from steps; fewer where that is not known.
    """
    first, cached, fresh = runs
    differs = difference(first, fresh, checks)
    if differs is None:
        leaked = difference(first, cached, checks)
        if leaked is None:
            return []
        text = f"a second trial finds what the first left in context.cache_dir, and ends elsewhere: {leaked}"
        return [
            Finding(Defect.STATE_LEAKS, name, f"{text}; what is cached must be what would be computed again")
        ]
    where = "after some iterations, so look at step()"
    if len(early) > 1 and difference(early[0], early[1], checks) is not None:
        where = "already after one iteration, so look at setup()"
    text = f"two trials with the same seed end differently, {where}: {differs}"
    return [Finding(Defect.NOT_REPEATABLE, name, f"{text}; draw everything random from context.seed")]


def difference(one: Evidence, other: Evidence, checks: Sequence[Check]) -> str | None:
    """Where two runs of an arm differ beyond rounding; None where they do not or nothing compares."""
    result = deviations.judge(one, other, checks, Parity.EXACT, {})
    fine = (ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE, ParityVerdict.UNCHECKED)
    return None if result.verdict in fine else str(result.worst or result.reason)


def no_evidence(
    name: str, checks: Sequence[Check], evidence: Evidence, early: Evidence | None
) -> list[Finding]:
    """Checks that nothing is compared for, and evidence that cannot show anything."""
    text = _shows_nothing(checks, evidence, early)
    return [Finding(Defect.NO_EVIDENCE, name, text)] if text else []


def _shows_nothing(checks: Sequence[Check], evidence: Evidence, early: Evidence | None) -> str | None:
    if not checks:
        return (
            "no checks are declared, so every arm would stay unchecked; declare what must not change, such as"
            " Check('losses')"
        )
    result = deviations.judge(evidence, evidence, checks, Parity.EXACT, {})
    if result.verdict is ParityVerdict.UNCHECKED:
        offered = ", ".join([*evidence.tensors, *evidence.numbers]) or "nothing"
        return f"{result.reason}; evidence() returns {offered}"
    if result.verdict is ParityVerdict.DIFFERENT:
        return f"the baseline cannot be compared with itself: {result.reason}"
    if early is not None and not differ(evidence, early):
        return "evidence() is the same after one iteration and after many: it does not show what was computed"
    return None


def differ(one: Evidence, other: Evidence) -> bool:
    """Whether any bit of two pieces of evidence differs."""
    if one.tensors.keys() != other.tensors.keys() or one.numbers != other.numbers:
        return True
    return not all(
        np.array_equal(np.asarray(one.tensors[name]), np.asarray(other.tensors[name])) for name in one.tensors
    )


def nothing_changes(
    level: Level, subject: str, base: Counters | None, arm: Counters | None, same_evidence: bool
) -> list[Finding]:
    """A level whose activity counter stays or, without one, whose counters and results are the base's."""
    if base is None or arm is None:
        return []
    if level.witness in FOUND_ON_DISK:
        return []  # counting trials start with nothing on disk: this shows in timing trials alone
    moved = [one.counter for one in counter_changes(base, arm) if not one.counter.startswith(NOISY)]
    if level.witness not in (None, ANYTHING):
        before, after = base.get(level.witness), arm.get(level.witness)
        if level.witness not in arm:
            text = (
                f"its witness {level.witness} is no counter; counters() must return it. There are:"
                f" {', '.join(sorted(arm))}"
            )
        elif before is None or after is None or before != after:
            return []
        else:
            text = f"its witness {level.witness} is {after:g} with and without it"
        return [
            Finding(
                Defect.NOTHING_CHANGES, subject, f"{text}; does setup() choose another path for this level?"
            )
        ]
    # Variables and process groups act where no counter looks.
    if moved or level.env or level.ranks > 1 or level.per_gpu or not same_evidence:
        return []
    text = (
        "no counter and no result differs from the base's; does setup() choose another path for this level?"
    )
    return [
        Finding(
            Defect.NOTHING_CHANGES,
            subject,
            f"{text} If it acts where no counter looks, name a witness and count it",
        )
    ]


def data_change(subject: str, base: str, arm: str) -> list[Finding]:
    """A level under which the data have another digest: such records are never compared."""
    if base == arm:
        return []
    text = "data_digest() differs from the base's, so a sweep would refuse to compare their times"
    return [
        Finding(
            Defect.DATA_CHANGE,
            subject,
            f"{text}; let it identify the examples, not how this level stores them",
        )
    ]


def other_form(base: Evidence, arm: Evidence, checks: Sequence[Check]) -> str | None:
    """How evidence of a level is held in another form than the base's, so that nothing can be compared.

    Other names or shapes, as of weights that a level stores fused, are the author's choice and no defect.
    """
    checked = [name for check in checks for name in _matching(check.name, base, arm)]
    forms = (_form(name, base, arm) for name in dict.fromkeys(checked))
    if (form := next(filter(None, forms), None)) is None:
        return None
    return (
        f"{form}: results are held in another form, so a sweep calls them different; to have them compared,"
        " return them in evidence() in one form for all levels"
    )


def _form(name: str, base: Evidence, arm: Evidence) -> str | None:
    """How one piece differs in its form alone; fewer or more entries of the same pieces are no other form."""
    if (name in base.tensors) != (name in arm.tensors):
        return f"evidence {name} is of the {'base' if name in base.tensors else 'level'} alone"
    ours, theirs = np.asarray(arm.tensors[name]), np.asarray(base.tensors[name])
    if ours.shape != theirs.shape and ours.size == theirs.size:
        return f"evidence {name} has shape {list(ours.shape)}, and {list(theirs.shape)} in the base"
    pieces, of_base = (list(one.parts.get(name, {}).items()) for one in (arm, base))
    if pieces == of_base or np.array_equal(ours, theirs):
        return None
    unlike = [one for one in [*pieces, *of_base] if one not in pieces or one not in of_base]
    if not unlike:
        return f"evidence {name} has its pieces in another order"
    other = unlike[0]
    return f"evidence {name} has the piece {other[0]} of {other[1]} entries in one of the two only"


def _matching(pattern: str, *evidence: Evidence) -> list[str]:
    names = [name for one in evidence for name in one.tensors]
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def results_change(subject: str, result: ParityResult) -> list[Finding]:
    """A level that computes something else than its class allows."""
    if result.verdict is not ParityVerdict.DIFFERENT:
        return []
    remedy = {
        Parity.EXACT: (
            "fix its path, or declare parity=Parity.TOLERANCE with bounds if it is meant to round differently"
        ),
        Parity.TOLERANCE: "fix its path, or raise its bounds if you can say why",
        Parity.STOCHASTIC: "fix its path",
    }[result.parity_class]
    text = f"declared {result.parity_class.value}, it {result.reason or result.worst}"
    return [Finding(Defect.RESULTS_CHANGE, subject, f"{text}; {remedy}")]


def host_reads(
    name: str, lines: Sequence[str], base: Counters | None, arms: Sequence[Counters | None]
) -> list[Finding]:
    """Lines of the step that read what it just computed, unless a level exists to do without."""
    if not lines:
        return []
    own = (base or {}).get("host_reads")
    fewer = [arm for arm in arms if arm and own is not None and (arm.get("host_reads") or 0.0) <= own - 1]
    if fewer:
        return []
    text = f"{'; '.join(lines)}: on a GPU the host waits there in every iteration"
    return [Finding(Defect.HOST_READS, name, f"{text}. Read it an iteration later, or only now and then")]


def state_leaks(name: str, leaks: Sequence[str]) -> list[Finding]:
    """State that a trial leaves for the next one in its process."""
    remedy = "keep state in the instance, and put settings back in close()"
    return [Finding(Defect.STATE_LEAKS, name, f"{leak}; {remedy}") for leak in leaks]
