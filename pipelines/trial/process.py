"""A process that runs an arm: set-up, warm-up, timed region, record; once, or in turns with other arms.

Started by `perfsweep.pipelines.execution.spawn`: forked from a server that has imported torch, or by exec
with the path of a spec.json.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perfsweep.pipelines.store.trial_files import read_spec, sizes_of_arrays, write_rank_failure, write_record
from perfsweep.pipelines.store.trial_schema import UNWRITTEN, Kind, Outcome, TrialRecord, TrialSpec
from perfsweep.pipelines.trial import scratch, shared_imports
from perfsweep.pipelines.trial.failures import classify, keep_on_oom
from perfsweep.pipelines.trial.parent import Reply, by_itself, flush_streams, take_workers_along
from perfsweep.pipelines.trial.scene import set_up
from perfsweep.pipelines.trial.timing.regions import Timing, timing_trial
from perfsweep.pipelines.trial.turns import Turns
from perfsweep.pipelines.trial.untimed import (
    counting_trial,
    course_trial,
    evidence_trial,
    quality_trial,
    result_trial,
)
from perfsweep.workloads.errors import RecordError


def run(spec: TrialSpec, folder: Path, rank: int = 0) -> TrialRecord:
    """Run a trial and write its record; any error of the workload becomes an outcome.

    All ranks of a process group run the same iterations; only rank 0 writes.
    """
    record = _record(spec, folder, rank, lambda: _run(spec, folder, rank))
    if rank == 0:
        scratch.remove(folder)
    return record


def serve(spec: TrialSpec, folder: Path, rank: int, pipe: Connection) -> None:
    """Set up and warm up, then time the region in the turns that come through `pipe`; write the record.

    Waiting for a turn is a blocking read: it costs the other arms nothing. A failure is sent as a `Reply`.
    """
    turns = Turns(pipe)
    take_workers_along()

    def measured() -> dict[str, Any]:
        with (
            set_up(spec, folder, rank) as scene,
            Timing(scene.workload, spec, scene.device, scene.log) as timing,
        ):
            timing.warm_up(folder)
            turns.ready(timing.ready())
            return scene.measure(spec, lambda: timing.region(folder, turns), turns.over)

    record = _record(spec, folder, rank, measured, lambda: turns.took_s)
    if rank == 0:
        scratch.remove(folder)
    flush_streams()  # on the reply the pack ends this process
    turns.reply(Reply(record.outcome, record.failure))


def _record(
    spec: TrialSpec,
    folder: Path,
    rank: int,
    work: Callable[[], dict[str, Any]],
    took_s: Callable[[], float | None] = lambda: None,
) -> TrialRecord:
    began = time.monotonic()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - the workload's code is not ours: whatever it raises is an outcome
        outcome, failure = classify(error)
        if outcome is Outcome.OOM and rank == 0:
            keep_on_oom(folder)  # now: the exception still refers to the tensors that used the memory
        print(failure.traceback, file=sys.stderr, flush=True)  # the log is where a user looks first
        found = {"outcome": outcome, "failure": failure}
    if (seconds := took_s()) is not None:
        began = time.monotonic() - seconds
    record = TrialRecord.of(spec, began, files=sizes_of_arrays(folder), **found)
    if spec.world > 1 and record.failure is not None:
        # The error of one rank causes errors in the others: only the first error shows the reason.
        write_rank_failure(folder, rank, record.outcome, record.failure)
    elif rank == 0:
        write_record(folder, record)
    return record


MEASURE = {
    Kind.TIMING: timing_trial,
    Kind.COUNTING: counting_trial,
    Kind.EVIDENCE: evidence_trial,
    Kind.COURSE: course_trial,
    Kind.QUALITY: quality_trial,
    Kind.RESULT: result_trial,
}


def _run(spec: TrialSpec, folder: Path, rank: int) -> dict[str, Any]:
    """Everything between start and record, as fields of the record."""
    before = {*sys.modules}
    with set_up(spec, folder, rank) as scene:
        if spec.kind is Kind.COUNTING and rank == 0:
            shared_imports.note(folder, before, scene.workload.replaces)
        measure = MEASURE[spec.kind]
        return scene.measure(spec, lambda: measure(scene.workload, spec, folder, scene.device, scene.log))


def main(arguments: list[str]) -> int:
    """Run the trial of a spec.json, at once or in turns; the exit status only tells if a record was written.

    It is `UNWRITTEN` if that failed. A rank that fails ends with status 1, so that the others do not wait for
    it.
    """
    file = Path(arguments[0])
    rank = int(arguments[1]) if len(arguments) > 1 else 0
    try:
        spec = read_spec(file)
    except RecordError as error:
        sys.exit(str(error))
    try:
        if len(arguments) > 2:
            serve(spec, file.parent, rank, Connection(int(arguments[2])))
            return 0
        record = run(spec, file.parent, rank)
    except OSError as error:  # from the trial's folder or log: errors of the workload are outcomes
        with suppress(OSError):
            print(f"what came of the trial cannot be written: {error}", file=sys.stderr, flush=True)
        return UNWRITTEN
    return int(spec.world > 1 and record.failure is not None)


if __name__ == "__main__":
    by_itself(main)
