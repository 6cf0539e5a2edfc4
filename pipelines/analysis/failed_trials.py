"""What is not there: trials that ended badly, by exception, line and log, and rounds that are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfsweep.pipelines.analysis.columns import (
    NAME_WIDTH,
    PROSE,
    Column,
    Style,
    Where,
    file_column,
    own_column,
    soft,
    some,
)
from perfsweep.pipelines.analysis.exclusions import machine_name, told_apart
from perfsweep.pipelines.store.progress import BAD, Progress, StoredTrial
from perfsweep.pipelines.store.records import Manifest, Outcome
from perfsweep.pipelines.store.trial_schema import JOB_OOM
from perfsweep.pipelines.units import few


@dataclass(frozen=True)
class FailedTrials:
    """Trials of one arm that ended in the same way.

    Attributes
    ----------
    trials : how many of each kind: ``1 evidence, 2 timing``
    exception : type and message, empty where the process left none
    where : the line of the workload, with its file and number
    log : of the last of them
    retired : whether the arm was not started again
    """

    arm: str
    trials: str
    outcome: Outcome
    exception: str
    where: str
    log: Path
    retired: bool

    @property
    def is_mistake(self) -> bool:
        """Whether a user has to act; an arm that needs more memory than there is has its answer."""
        return self.outcome is not Outcome.OOM


def failed_trials(progress: Progress, manifest: Manifest) -> tuple[FailedTrials, ...]:
    """Group the trials that ended badly and that no later attempt at the same has repaired."""
    names = manifest.arm_names
    groups: dict[tuple[str, Outcome, str], list[StoredTrial]] = {}
    for trial in _unmended(progress):
        record = trial.record
        exception = record.failure.text if record.failure else ""
        groups.setdefault((record.arm, record.outcome, exception), []).append(trial)
    return tuple(
        _failed(
            names[arm],
            outcome,
            exception,
            trials,
            any(progress.retired(pack.id, [arm]) for pack in manifest.packs if arm in pack.arms),
        )
        for (arm, outcome, exception), trials in groups.items()
    )


def _unmended(progress: Progress) -> list[StoredTrial]:
    """By attempt and not by time: clocks are set back, and differ between nodes."""
    mended: dict[tuple[object, ...], int] = {}
    for one in progress.every:
        if one.record.outcome is Outcome.OK:
            mended[_place(one)] = max(one.record.attempt, mended.get(_place(one), 0))
    bad = (one for one in progress.every if one.record.outcome in BAD)
    return [one for one in bad if one.record.attempt > mended.get(_place(one), -1)]


def _place(trial: StoredTrial) -> tuple[object, ...]:
    """What an attempt was made at: a round of a pack, or a trial that is needed once."""
    record = trial.record
    pack = record.pack if record.round is not None else None
    return record.arm, record.kind, pack, record.round, record.replicate


def _failed(
    arm: str, outcome: Outcome, exception: str, trials: list[StoredTrial], retired: bool
) -> FailedTrials:
    counts = Counter(trial.record.kind.value for trial in trials)
    last, failure = trials[-1], trials[-1].record.failure
    return FailedTrials(
        arm=arm,
        trials=", ".join(f"{number} {kind}" for kind, number in sorted(counts.items())),
        outcome=outcome,
        exception=exception,
        where=failure.where if failure else "",
        log=last.folder / "log.txt",
        retired=retired,
    )


FAILURES: tuple[Column[FailedTrials], ...] = (
    Column(
        "arm",
        "arm",
        lambda one: one.arm,
        lambda one: one.arm.replace(",", ", "),
        doc="what the sweep calls it",
        width=NAME_WIDTH,
    ),
    own_column("trials", "trials", doc="that ended so, by kind"),
    file_column("outcome", lambda one: one.outcome.value, doc="how they ended"),
    Column(
        "exception",
        "ended by",
        lambda one: one.exception,
        lambda one: one.exception or one.outcome.value,
        doc="type and message, empty where the process left none",
        width=PROSE,
        style=lambda one: Style.BAD if one.is_mistake else Style.PLAIN,
    ),
    own_column("where", "in", where=Where.WIDE, doc="line of the workload", width=PROSE, optional=True),
    own_column(
        "retired", "retired", some(lambda _: "retired"), doc="not started again", kind=bool, optional=True
    ),
    Column(
        "log",
        "log",
        lambda one: str(one.log),
        where=Where.WIDE,
        doc="of the last of them",
        width=PROSE,
        style=soft,
    ),
)
"""Of one arm and exception each row; a terminal has lines and logs below it, whole: they can be copied."""

_REPAIRED = (Outcome.FAILED, Outcome.TIMEOUT)
"""Ends whose cause may lie outside of the code, so that what repairs it makes no other arms."""


def remedies(failures: Sequence[FailedTrials]) -> tuple[str, ...]:
    """Say how arms are measured again whose trials failed, once what was wrong has been put right."""
    arms = dict.fromkeys(one.arm for one in failures if one.outcome in _REPAIRED)
    outcomes = sorted({one.outcome.value for one in failures if one.outcome in _REPAIRED})
    again = f"{few([*arms], 'arms')}: once the cause is repaired, the same command with"
    starved = dict.fromkeys(one.arm for one in failures if one.exception.startswith(JOB_OOM))
    more = (
        f"memory of the job ran out in {few([*starved], 'arms')}: raise cluster.memory, and add retry=[oom]"
    )
    return (
        *([f"{again} retry=[{','.join(outcomes)}] measures that again"] if arms else ()),
        *([more] if starved else ()),
    )


def missing_rounds(progress: Progress, manifest: Manifest) -> tuple[str, ...]:
    """Say which rounds are missing: rounds that a command measures, and rounds of failed arms.

    A pack none of whose arms can run, or fit into memory, misses none: that is its answer.
    """
    still: dict[str, str] = {}
    failed: dict[str, str] = {}
    for pack in manifest.packs:
        planned = progress.rounds_wanted(pack)
        number = sum(progress.finished_attempt(pack, n) is None for n in range(planned))
        retired = progress.retired(pack.id, pack.arms)
        if number and len(retired) < len(pack.arms):
            still[pack.id] = f"{number} of {planned} in {pack.id}"
        elif number and any(last.outcome in BAD - {Outcome.OOM} for last in retired.values()):
            failed[pack.id] = f"{number} of {planned} in {pack.id}"
    lines = [f"rounds are missing: {few([*still.values()], 'packs')}; the same command measures them"]
    given_up = (
        f"rounds are missing: {few([*failed.values()], 'packs')},"
        " since every arm failed and was not started again"
    )
    return (*(lines if still else ()), *([given_up] if failed else ()))


def notes_on_other_machines(progress: Progress, manifest: Manifest) -> list[str]:
    """Say what ran on other kinds of machines, and so has tables of its own."""
    notes = []
    for part in progress.elsewhere:
        trials = [one for attempts in part.timing.values() for one in attempts.values()]
        ran = {owner for owner, _ in part.timing}
        packs = [pack.id for pack in manifest.packs if pack.id in ran]
        if not packs:
            continue
        apart = told_apart(progress.machine, part.machine)
        notes.append(
            f"{sum(map(len, trials))} timing trials are left out: {apart}; pairs in"
            f" {few(packs, 'packs')} are in tables of their own, for"
            f" {machine_name(progress.machine, part.machine)}{_remedy(progress.machine, part.machine)}"
        )
    return notes


def _remedy(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    if theirs.get("device") == ours.get("device"):
        return ""
    return "; on a cluster, cluster.gpu_type or cluster.constraint keeps packs on one kind"
