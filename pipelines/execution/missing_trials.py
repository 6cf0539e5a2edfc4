"""Which packs lack trials in addition to their rounds: counts, evidence, trainings, and results to keep."""

from __future__ import annotations

from collections.abc import Iterable

from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.timed import TimedNumbers
from perfsweep.pipelines.store import needed_once
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, Pack, SweepFolder, read_evidence

ONCE = (Kind.COUNTING, Kind.EVIDENCE)
"""Kinds that every arm has one trial of; what the first compiles, the second need not."""


def lacking(manifest: Manifest, progress: Progress, retry: frozenset[Outcome] = frozenset()) -> set[str]:
    """Name the packs with arms that lack one, or are to make one again.

    Rounds that are finished say nothing of it: a record may have been damaged since. An arm that is not
    started again lacks nothing.
    """
    agreement = Agreement(manifest, progress, read_evidence)
    return {pack.id for pack in manifest.packs if _lacks(pack, agreement, progress, retry)}


def _lacks(pack: Pack, agreement: Agreement, progress: Progress, retry: frozenset[Outcome]) -> bool:
    if any(progress.lacks(pack.id, arm, kind, retry=retry) for arm in pack.arms for kind in ONCE):
        return True
    wanted = agreement.replicates_wanted(pack)
    return any(progress.lacks(pack.id, arm, Kind.EVIDENCE, offset, retry) for arm, offset in wanted)


def beside_rounds(folder: SweepFolder, manifest: Manifest, retry: Iterable[str]) -> set[str]:
    """Name the packs that lack trainings, results to keep, or what the numbers of rounds are held against.

    Raises
    ------
    ConfigError
        A folder where results are to be kept holds something already.
    """
    progress, outcomes = read_progress(folder, manifest), frozenset(map(Outcome, retry))
    packs = unchecked(manifest, progress) | untrained(manifest, progress, outcomes)
    return packs | _unkept(manifest, progress, outcomes)


def unchecked(manifest: Manifest, progress: Progress) -> set[str]:
    """Name the packs that lack trials which the numbers of their timing trials are held against."""
    if not manifest.sweep.measure.timed_parity:
        return set()
    timed = TimedNumbers(manifest, progress)
    return {pack.id for pack in manifest.packs if timed.missing(pack)}


def untrained(manifest: Manifest, progress: Progress, retry: frozenset[Outcome] = frozenset()) -> set[str]:
    """Name the packs with arms that are still to be trained to the target."""
    return {
        pack.id
        for pack in manifest.packs
        for arm, _ in needed_once.untrained(manifest, progress, pack, retry)
        if not progress.retired(pack.id, [arm])
    }


def _unkept(manifest: Manifest, progress: Progress, retry: frozenset[Outcome]) -> set[str]:
    """Name the packs with arms whose results are still to be kept, and make the folders for these."""
    arms = needed_once.arms_without(manifest, progress, retry)
    needed_once.make_folders(manifest, arms)
    awaited = {arm.id for arm in arms}
    return {pack.id for pack in manifest.packs if awaited & set(pack.arms)}
