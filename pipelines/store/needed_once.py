"""What a pack does once, apart from rounds: trainings to the target, and results that are kept.

Results are in one folder, or in one within it for each arm of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path

from perfsweep.pipelines.store import trial_files
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import IDEAL_LOADER, PLACEBO, Manifest, Outcome, Pack, TrialRecord
from perfsweep.pipelines.store.schema import Arm, Keep, Kind
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


def kept_folder(manifest: Manifest, arm: Arm) -> Keep | None:
    """Name the folder of one arm's results; None where nothing is to be kept."""
    keep = manifest.sweep.keep
    if keep is None or len(manifest.arms) == 1:
        return keep
    plain = re.sub(r"[^A-Za-z0-9._=+-]+", "-", arm.label)
    return replace(keep, folder=str(Path(keep.folder) / f"{plain}-{arm.id[:6]}"))


def arms_without(
    manifest: Manifest, progress: Progress, retry: Container[Outcome] = frozenset()
) -> list[Arm]:
    """List the arms whose results are still to be kept; what cannot run has none, nor have placebos."""
    if manifest.sweep.keep is None:
        return []
    return [arm for arm in manifest.arms if not arm.placebo and _awaited(manifest, arm, progress, retry)]


def _awaited(manifest: Manifest, arm: Arm, progress: Progress, retry: Container[Outcome]) -> bool:
    evidence, result = (progress.other.get((arm.id, kind)) for kind in (Kind.EVIDENCE, Kind.RESULT))
    if evidence is not None and evidence.record.outcome is not Outcome.OK:
        return False
    if result is None or result.record.outcome in retry:
        return True
    keep = kept_folder(manifest, arm)
    elsewhere = keep is not None and not any(Path(keep.folder).glob("*"))  # than the last time
    return result.record.outcome is Outcome.OK and elsewhere


def make_folders(manifest: Manifest, arms: Iterable[Arm]) -> None:
    """Make an empty folder for each arm before anything runs: what would end by overwriting does not begin.

    Raises
    ------
    ConfigError
        The folder of an arm's results holds something, or cannot be made.
    """
    for arm in arms:
        if keep := kept_folder(manifest, arm):
            trial_files.create(Path(keep.folder))
