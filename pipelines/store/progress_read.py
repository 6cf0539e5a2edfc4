"""Reads the records of a sweep: which of them count, and on which machine they were measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfsweep.pipelines.store.progress import Progress, StoredTrial, agrees, machine_of
from perfsweep.pipelines.store.records import (
    Arm,
    Kind,
    Manifest,
    Outcome,
    SweepFolder,
    TrialRecord,
    read_record,
)
from perfsweep.pipelines.store.stop_rule import StopRule
from perfsweep.workloads.errors import RecordError


def read_progress(folder: SweepFolder, manifest: Manifest, here: Mapping[str, str] | None = None) -> Progress:
    """Read all records of the arms of a manifest; a file that cannot be read is named in `damaged`.

    A damaged file is not named if a later attempt has repeated its trial. With `here`, the facts of this
    machine, records with other facts count as missing: a trial on another GPU or with another torch is
    repeated. Without `here`, the machine of most timing trials counts.
    """
    progress = _empty(manifest, {})
    trials: list[StoredTrial] = []
    for arm in manifest.arms:
        records, damaged = _of_arm(folder, arm.id)
        progress.damaged += damaged
        for path, record in records:
            if why := _foreign(record, manifest, arm, here or {}):
                progress.left_out[why] += 1
            else:
                trials.append(StoredTrial(path, _without(record, manifest.sweep.factors)))
    _add_by_machine(progress, trials, manifest)
    return progress


def _of_arm(folder: SweepFolder, arm: str) -> tuple[list[tuple[Path, TrialRecord]], list[str]]:
    """Records of an arm by folder, and the errors of damaged ones that no later attempt replaces."""
    records: list[tuple[Path, TrialRecord]] = []
    damaged: list[tuple[tuple[str, str], int, str]] = []
    latest: dict[tuple[str, str], int] = {}
    for path, pack, stage, attempt in folder.trial_dirs(arm):
        try:
            record = read_record(path)
        except RecordError as error:
            damaged.append(((pack, stage), attempt, str(error)))
            continue
        if record is not None:
            records.append((path, record))
            latest[pack, stage] = max(attempt, latest.get((pack, stage), attempt))
    return records, [said for trial, attempt, said in damaged if attempt > latest.get(trial, -1)]


def _empty(manifest: Manifest, machine: Mapping[str, str]) -> Progress:
    measure = manifest.sweep.measure
    return Progress(repeats=measure.repeats, rule=StopRule(manifest), machine=machine)


def _add_by_machine(progress: Progress, trials: Sequence[StoredTrial], manifest: Manifest) -> None:
    """Add each trial to the progress of its machine: the one of most timing trials, or one of the others."""
    progress.machine, *others = _machines(trials, manifest) or [{}]
    progress.elsewhere = [_empty(manifest, machine) for machine in others]
    for trial in trials:
        owners = (one for one in progress.elsewhere if one.machine == machine_of(trial.record.keys))
        owner = progress if agrees(trial.record, progress.machine) else next(owners, progress)
        owner.add(trial)
        if owner is not progress:
            progress.every.append(trial)


def _machines(trials: Sequence[StoredTrial], manifest: Manifest) -> list[Mapping[str, str]]:
    """Kinds of machines that timing trials ran on: by number of rounds, then the last used first.

    If several kinds have measured a round, only the attempt counts that would count on one kind. So if a
    sweep was measured again elsewhere, or with another torch, the newer measurement comes first.
    """
    timed = [one for one in trials if one.record.kind is Kind.TIMING and one.record.outcome is Outcome.OK]
    kinds = {_kind(one): (0, 0.0) for one in timed}
    if len(kinds) > 1:
        all_alike = _empty(manifest, {})
        for trial in trials:
            all_alike.add(trial)
        used = (
            one for pack in manifest.packs for n in range(len(pack.orders)) for one in all_alike.used(pack, n)
        )
        for one in used:
            if one.record.outcome is Outcome.OK:
                number, last = kinds[_kind(one)]
                kinds[_kind(one)] = number + 1, max(last, one.record.started)
    return [dict(kind) for kind in sorted(kinds, key=lambda one: (kinds[one], one), reverse=True)]


def _kind(trial: StoredTrial) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(machine_of(trial.record.keys).items()))


def _foreign(record: TrialRecord, manifest: Manifest, arm: Arm, here: Mapping[str, str]) -> str:
    """Say what makes a record part of another experiment; empty where nothing does."""
    if record.code != manifest.sweep.code_of(arm):
        return "other code"
    if record.method != manifest.sweep.measure.method:
        return "other settings of measure"
    if record.placement != manifest.sweep.placement:
        return "other nodes"
    if not agrees(record, {**here, **manifest.sweep.keys_of(arm)}):
        return "another machine, device or version"
    return ""


def _without(record: TrialRecord, factors: Collection[str]) -> TrialRecord:
    """A record without the comparison keys that its sweep compares; it agrees with its arm in these keys."""
    if not factors:
        return record
    return replace(record, keys={name: value for name, value in record.keys.items() if name not in factors})
