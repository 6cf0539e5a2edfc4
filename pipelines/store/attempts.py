"""Attempts at a pack, numbered: of two live copies of a pack the later measures, the earlier stops.

Execution on a cluster is at least once: a node that lost contact goes on measuring while its pack is started
again elsewhere. Every start claims a number of its own, so that what two copies write never mixes in one
round.
"""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

from perfsweep.pipelines.store.files import write_once
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    Failure,
    Manifest,
    Outcome,
    Pack,
    SweepFolder,
    TrialRecord,
    read_spec,
    write_record,
)
from perfsweep.pipelines.store.trial_schema import JOB_OOM


class Superseded(BaseException):
    """A later attempt at this pack has started; like an interrupt it passes handlers of ordinary mistakes."""


def claim(folder: SweepFolder, pack: Pack) -> int:
    """Take the next number, whoever else is taking one at the same time."""
    number = max([newest(folder, pack.id), *_in_records(folder, pack)], default=-1) + 1
    facts = {
        "time": time.time(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job": os.environ.get("SLURM_JOB_ID"),
        "restarts": int(os.environ.get("SLURM_RESTART_COUNT", "0")),
    }
    while not write_once(_file(folder, pack.id, number), json.dumps(facts).encode()):
        number += 1
    return number


def newest(folder: SweepFolder, pack: str) -> int:
    """Return the latest attempt's number, -1 before the first."""
    root = _file(folder, pack, 0).parent
    numbers = [int(file.stem) for file in root.iterdir() if file.stem.isdigit()] if root.is_dir() else []
    return max(numbers, default=-1)


def stop_if_superseded(folder: SweepFolder, pack: str, attempt: int) -> None:
    """Raise Superseded where a later attempt has started."""
    if (latest := newest(folder, pack)) > attempt:
        raise Superseded(f"attempt {latest} at {pack} has started: attempt {attempt} stops here")


def advanced(folder: SweepFolder, manifest: Manifest, pack: Pack) -> bool:
    """Tell whether the latest attempt finished a round, or a trial that is needed once."""
    attempt = newest(folder, pack.id)
    progress = read_progress(folder, manifest)
    rounds = any(
        progress.finished_attempt(pack.id, number, pack.arms) == attempt for number in range(len(pack.orders))
    )
    once = (*progress.other.values(), *progress.seeds.values(), *progress.trainings.values())
    records = [*(found.record for found in once), *(one for own in progress.courses.values() for one in own)]
    return rounds or any(one.pack == pack.id and one.attempt == attempt for one in records)


def record_oom(folder: SweepFolder, pack: Pack) -> bool:
    """Give the trial that ran when memory ended the whole pack its outcome; return whether there was one.

    A memory limit of the job kills the pack's parent too, which would have written it.
    """
    attempt = newest(folder, pack.id)
    found = False
    for arm in pack.arms:
        for path, owner, _, number in folder.trial_dirs(arm):
            if (
                owner == pack.id
                and number == attempt
                and (path / "spec.json").exists()
                and not (path / "record.json").exists()
            ):
                failure = Failure(type=JOB_OOM, message="Slurm ended the job because memory ran out")
                started = (path / "spec.json").stat().st_mtime
                record = TrialRecord.of(
                    read_spec(path / "spec.json"), started, outcome=Outcome.OOM, failure=failure
                )
                found |= write_record(path, record)
    return found


def _in_records(folder: SweepFolder, pack: Pack) -> list[int]:
    """List the attempts that left trials: older sweep folders, without claims, know them by these."""
    return [number for arm in pack.arms for _, owner, _, number in folder.trial_dirs(arm) if owner == pack.id]


def _file(folder: SweepFolder, pack: str, number: int) -> Path:
    return folder.pack_dir(pack) / "attempts" / f"{number}.json"
