"""Where saved results are: one folder, or one in it for each arm of a sweep."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path

from perfsweep.pipelines.store import trial_files
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.schema import Arm, Keep, Kind, Manifest, Outcome


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
