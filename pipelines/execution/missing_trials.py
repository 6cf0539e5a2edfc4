"""Which packs still lack trials without times: counting, evidence, and evidence of further seeds."""

from __future__ import annotations

from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import Kind, Manifest, Outcome, Pack, read_evidence

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
