"""The process of a look: a script's first iterations, with what was seen of them.

Started by `perfsweep.pipelines.check.first_look` by exec, so that the script is alone from its first import
on.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from perfsweep.pipelines.check import ANSWER
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.records import TrialSpec, read_spec, write_evidence, write_status
from perfsweep.pipelines.trial.failures import classify
from perfsweep.pipelines.trial.parent import by_itself
from perfsweep.pipelines.trial.scene import set_up
from perfsweep.pipelines.trial.untimed import begin_evidence
from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import ConfigError

ITERATIONS = 3
"""After the one that set-up ends with."""

EPOCH_S = 30.0
"""What comes at an epoch's end, such as a checkpoint, is waited for if it takes no longer than this."""

AHEAD, AHEAD_S, NEEDED, NEEDED_S = 400, 3.0, 140, 10.0
"""Iterations and seconds for which a script without a known epoch goes on, to see whether it ends before it
could be measured; and the iterations that a trial needs with its warm-up, for which it has more seconds."""


def run(spec: TrialSpec, folder: Path, rank: int) -> None:
    """Look at a script, and write down what was seen or why nothing was."""
    try:
        answer = _looked(spec, folder, rank)
    except Exception as error:  # noqa: BLE001 - the script is not ours: whatever it raises is the answer
        _, failure = classify(error)
        print(failure.traceback, file=sys.stderr, flush=True)
        answer = {"failure": dataclasses.asdict(failure)}
    if rank == 0:
        write_atomically(folder / ANSWER, json.dumps(answer).encode())


def _looked(spec: TrialSpec, folder: Path, rank: int) -> dict[str, Any]:
    there = threading.enumerate()
    with set_up(spec, folder, rank) as scene:
        workload: Any = scene.workload
        begin_evidence(workload)
        before, units, times_ns = Counter(workload.counters()), workload.progress(), []
        for number in range(ITERATIONS):
            write_status(folder, f"iteration {number + 1} of {ITERATIONS}")
            start = time.perf_counter_ns()
            workload.step(NullClock())
            times_ns.append(time.perf_counter_ns() - start)
        answer = {
            "setup_s": scene.setup_s,
            "times_ns": times_ns,
            "units": (workload.progress() - units) / ITERATIONS,
            "counts": {
                name: (count - before[name]) / ITERATIONS for name, count in workload.counters().items()
            },
            "data": workload.data_digest(),
        }
        evidence = workload.evidence()
        if rank == 0:
            write_evidence(folder, evidence)
        each_s = statistics.median(times_ns) / 1e9
        ended_after = 0 if spec.attempt else _epochs_end(workload, folder, each_s)
        sight = dataclasses.asdict(workload.sight())
        seen = {"sight": sight, "ended_after": ended_after, "to_epochs_end": workload.to_epochs_end}
    return {**answer, **seen, "threads": _left_over(there)}


def _epochs_end(workload: Any, folder: Path, iteration_s: float) -> int:
    """Go on past the end of an epoch; iterations after which the script has ended by itself, 0 where not."""
    left = workload.to_epochs_end
    wanted, begun = left or AHEAD, time.monotonic()
    for number in range(wanted if left * iteration_s <= EPOCH_S else 0):
        patience_s = EPOCH_S if left else NEEDED_S if number < NEEDED else AHEAD_S
        if time.monotonic() - begun > patience_s:
            break
        end = "the end of its epoch" if left else "see whether it ends soon"
        write_status(folder, f"{wanted - number} iterations to {end}")
        try:
            workload.step(NullClock())
        except ConfigError:
            if workload.has_ended:
                return number + ITERATIONS + 1
            raise
    return 0


def _left_over(there: Collection[threading.Thread]) -> list[str]:
    """Threads that the script has started, and for which a process would wait at its end."""
    alive = threading.enumerate()
    return [thread.name for thread in alive if thread not in there and not thread.daemon]


def main(arguments: list[str]) -> int:
    """Look at the program of a spec.json, as one of its ranks."""
    file = Path(arguments[0])
    run(read_spec(file), file.parent, int(arguments[1]))
    return 0


if __name__ == "__main__":
    by_itself(main)
