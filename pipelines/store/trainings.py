"""Which arms are trained to the target with which seeds, and which trainings are still missing."""

from __future__ import annotations

from collections.abc import Container

from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import IDEAL_LOADER, PLACEBO, Manifest, Outcome, Pack, TrialRecord
from perfsweep.pipelines.store.target import Target

NO_TRAINING = frozenset({PLACEBO, IDEAL_LOADER})
"""Designs whose arms are no choice, and are not trained to a target."""


def trained_arms(manifest: Manifest) -> tuple[str, ...]:
    """List the arms of effects between two arms, and their bases; none where the sweep has no target.

    A contrast of many arms has no steps of its own.
    """
    if Target.of(manifest.sweep.measure) is None:
        return ()
    effects = (one for one in manifest.effects if one.design not in NO_TRAINING and not one.contrast)
    pairs = (pair for effect in effects if len(effect.pairs) == 1 for pair in effect.pairs)
    arms = dict.fromkeys(arm for pair in pairs for arm in reversed(pair))
    return tuple(dict.fromkeys([*manifest.sweep.references.values(), *arms]))


def untrained(
    manifest: Manifest, progress: Progress, pack: Pack, retry: Container[Outcome] = frozenset()
) -> list[tuple[str, int]]:
    """List (arm, seed) of the trainings that are missing, all arms of a seed together.

    An arm of several packs is trained by the first. One that failed is not repeated unless its outcome is
    among those to `retry`.
    """
    target = Target.of(manifest.sweep.measure)
    if target is None:
        return []
    found, packs = progress.trainings, manifest.packs
    owners = {arm: one.id for one in reversed(packs) for arm in one.arms}
    return [
        (arm, seed)
        for seed in range(manifest.sweep.measure.target_seeds)
        for arm in trained_arms(manifest)
        if owners.get(arm) == pack.id
        and ((one := found.get((arm, seed))) is None or _again(one.record, target, retry))
    ]


def _again(record: TrialRecord, target: Target, retry: Container[Outcome]) -> bool:
    if record.outcome is not Outcome.OK:
        return record.outcome in retry
    return not target.decided_by(record.course)
