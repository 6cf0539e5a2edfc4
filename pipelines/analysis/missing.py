"""Rounds that were planned and do not count: which are missing, and which ran on another machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfsweep.pipelines.analysis.comparable import machine_name, told_apart
from perfsweep.pipelines.store.progress import BAD, Progress
from perfsweep.pipelines.store.records import Manifest, Outcome, Pack

NAMED = 5
"""Packs that a sentence names."""


def missing_rounds(progress: Progress, manifest: Manifest) -> tuple[str, ...]:
    """Say which rounds are missing: those that a command measures, and those of arms that failed.

    A pack none of whose arms can run, or fit into memory, misses none: that is its answer.
    """
    still: dict[str, str] = {}
    failed: dict[str, str] = {}
    reasons: dict[str, None] = {}
    for pack in manifest.packs:
        planned = progress.rounds_wanted(pack)
        number = sum(progress.finished_attempt(pack.id, n, pack.arms) is None for n in range(planned))
        retired = progress.retired(pack.id, pack.arms)
        if number and len(retired) < len(pack.arms):
            still[pack.id] = f"{number} of {planned} in {pack.id}"
        elif number and any(last.outcome in BAD - {Outcome.OOM} for last in retired.values()):
            failed[pack.id] = f"{number} of {planned} in {pack.id}"
            reasons |= dict.fromkeys(last.failure.text for last in retired.values() if last.failure)
    lines = [f"rounds are missing: {_some([*still.values()])}; the same command measures them"]
    given_up = (
        f"rounds are missing: {_some([*failed.values()])}, since every arm failed and was not started again"
        f" ({next(iter(reasons), 'without an exception')}). Mend that and start the same command again, with"
        " retry=[failed] where the code was not the cause"
    )
    return (*(lines if still else ()), *([given_up] if failed else ()))


def notes_on_other_machines(progress: Progress, manifest: Manifest) -> list[str]:
    """Say what ran on other kinds of machines, and so stands in tables of its own."""
    notes = []
    for part in progress.elsewhere:
        trials = [one for attempts in part.timing.values() for one in attempts.values()]
        packs = [pack for pack in manifest.packs if _ran(pack, part)]
        if not packs:
            continue
        apart = told_apart(progress.machine, part.machine)
        notes.append(
            f"{sum(map(len, trials))} timing trials are left out: {apart}; pairs in"
            f" {_some([pack.id for pack in packs])} stand in tables of their own, for"
            f" {machine_name(progress.machine, part.machine)}{_remedy(progress.machine, part.machine)}"
        )
    return notes


def _ran(pack: Pack, part: Progress) -> bool:
    return any(owner == pack.id for owner, _ in part.timing)


def _remedy(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    if theirs.get("device") == ours.get("device"):
        return ""
    return "; on a cluster, cluster.gpu_type or cluster.constraint keeps packs on one kind"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more packs" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
