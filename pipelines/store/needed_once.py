"""What a pack does once, apart from rounds: trainings to the target, results that are kept, power at rest.

Results are in one folder, or in one within it for each arm of a sweep.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from perfsweep.pipelines.store import trial_files
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.options import Target
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import (
    IDEAL_LOADER,
    PLACEBO,
    Manifest,
    Outcome,
    Pack,
    StoredValue,
    SweepFolder,
    TrialRecord,
)
from perfsweep.pipelines.store.schema import Arm, Keep, Kind
from perfsweep.workloads.errors import RecordError

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


_FILE = "idle.json"


class IdlePower(StoredValue):
    """What the counters of energy say of a machine on which no trial runs.

    Attributes
    ----------
    watts : by counter
    source : of the counters, such as NVML
    step_s : time between two changes of the slowest counter; None where none was seen
    withheld : why there are no watts, as one sentence
    """

    source: str = ""
    watts: dict[str, float] = {}
    step_s: float | None = None
    withheld: str = ""


def write_idle(folder: SweepFolder, pack: str, idle: IdlePower) -> None:
    """Keep what a pack measured, in place of what it measured when it was started before."""
    folder.pack_dir(pack).mkdir(parents=True, exist_ok=True)
    write_atomically(folder.pack_dir(pack) / _FILE, idle.model_dump_json(indent=1).encode())


def read_idle(folder: SweepFolder, pack: str) -> IdlePower | None:
    """Read what a pack measured; None where it has measured nothing.

    Raises
    ------
    RecordError
        The file is damaged.
    """
    file = folder.pack_dir(pack) / _FILE
    try:
        return IdlePower.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise RecordError(f"{file} cannot be read ({type(error).__name__}); remove it") from error
