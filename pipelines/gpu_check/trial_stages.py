"""Stages 2 and 3: do trials get along with the device?

They are forked, take turns and have several ranks; their memory is limited, and what a graph keeps counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsweep.pipelines.config.types import MeasureConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.execution.spawn import wait
from perfsweep.pipelines.gpu_check.answer import Here, Line, cases, judged, measured, needs_gpu
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Outcome, SweepFolder
from perfsweep.pipelines.trial.failures import ON_OOM
from perfsweep.pipelines.trial.parent import detach, die_with_parent
from perfsweep.pipelines.worker_process import Worker, answers, last_line

LIMIT_S = 120.0
RANKS = 2
ROUNDS = 4
ELEMENTS = 1000


def examine_processes(here: Here) -> Iterator[Line]:
    """Ask a forked child, two arms that take turns, and two ranks."""
    yield fork_line(here)
    yield turns_line(here, cases()["turns"])
    if here.on_gpu and here.device.count < RANKS:
        yield from needs_gpu("two ranks", text="two of them")
    else:
        yield ranks_line(here)


def fork_line(here: Here) -> Line:
    """A child of the fork server, which has imported torch, computes on the device."""
    answer = here.folder / "forked.json"
    answer.unlink(missing_ok=True)
    child = ForkServer([]).call(compute, str(answer), here.device.type)
    ended = wait([child], LIMIT_S)
    if ended is not None or not answer.exists():
        log = answer.with_suffix(".txt")
        last = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
        return judged("fork", False, f"a forked child cannot compute on the device: {last or ended}")
    total = json.loads(answer.read_text())
    return judged("fork", total == ELEMENTS, f"a forked child added {total:g} of {ELEMENTS} ones")


def compute(answer: str, device: str) -> None:
    """First function of a forked child: allocate on the device, and add."""
    file = Path(answer)
    detach(file.with_suffix(".txt"))
    import torch

    total = torch.ones(ELEMENTS, device=device).sum().item()
    file.write_text(json.dumps(total))


def turns_line(here: Here, overrides: Sequence[str]) -> Line:
    """Two arms have processes of their own and take turns."""
    quick = (f"measure.rounds={ROUNDS}", "measure.iterations=4")
    sweep = measured(here, "turns", [*overrides, *quick, "measure.look=true"])
    ended = [
        trial.record.outcome.value
        for attempts in sweep.progress.timing.values()
        for arms in attempts.values()
        for trial in arms.values()
    ]
    due, good = ROUNDS * len(sweep.manifest.arms), ended.count("ok")
    text = (
        f"{good} trials of {len(sweep.manifest.arms)} arms in turns ended well, {len(ended) - good} did not"
    )
    return judged("turns", due <= good == len(ended), text, trials=good)


def ranks_line(here: Here) -> Line:
    """Two processes meet, add their tensors on the device, and agree on their hosts."""
    folder = here.folder / "ranks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rendezvous").unlink(missing_ok=True)
    with (folder / "log.txt").open("w+b") as log:
        ranks = [Worker([sys.executable, "-m", __name__, str(folder), str(i)], log=log) for i in range(RANKS)]
        try:
            said = [rank.answer(LIMIT_S) for rank in ranks]
            late = None in said and not all(rank.gone for rank in ranks)
        finally:
            for rank in ranks:
                rank.end()
        if late:
            return judged("two ranks", False, f"two ranks did not meet within {LIMIT_S:g} s")
        due = {"sum": sum(range(1, RANKS + 1)), "agreed": True}
        by = "NCCL and Gloo" if here.on_gpu else "Gloo, on CPU"
        good = said == [due] * RANKS
        text = f"two ranks met by {by}" if good else f"two ranks said {said}: {last_line(log)}"
        return judged("two ranks", good, text)


def meet(folder: Path, rank: int) -> dict[str, Any]:
    """Join the other rank; what both tensors add up to, and whether rank 0's word reached this one."""
    import torch
    import torch.distributed as dist

    from perfsweep.pipelines.trial import ranks
    from perfsweep.pipelines.trial.machine import environment

    device = environment.device_facts()
    ranks.join(device, ranks.Place(rank, RANKS, 0, rank, RANKS), folder)
    mine = torch.full((1,), rank + 1.0, device=device.type)
    dist.all_reduce(mine)
    agreed = ranks.agree(rank == 0, RANKS)
    dist.destroy_process_group()
    return {"sum": mine.item(), "agreed": agreed}


GRAPH_SHARE = 0.9
"""Of the eager peak: a graph replays in memory that it never gives back."""


def examine_memory(here: Here) -> Iterator[Line]:
    """Ask an arm that needs too much, and a graph next to the same arm without one."""
    case = cases()["memory"]
    budget = case["budget"]
    over = timing_trial(here, "budget", budget["workload"], {}, memory_gib=budget["memory_gib"])
    yield budget_line(over, snapshot=here.on_gpu)
    if not here.on_gpu:
        yield from needs_gpu("memory of a graph")
        return
    graph = case["graph"]
    eager = timing_trial(here, "eager", graph["workload"], graph["toggles"])
    replayed = timing_trial(here, "graph", graph["workload"], {**graph["toggles"], **graph["graphed"]})
    yield graph_line(eager, replayed)


def budget_line(over: StoredTrial, snapshot: bool) -> Line:
    """An arm over its budget ends as oom; on a GPU it leaves a picture of what held the memory."""
    failure = over.record.failure
    text = f"an arm over its budget ended as {over.record.outcome.value}"
    good = over.record.outcome is Outcome.OOM
    if snapshot and not (over.folder / ON_OOM).exists():
        return judged("budget", False, f"{text} and left no {ON_OOM}")
    return judged("budget", good, text if good or failure is None else f"{text}: {failure.message}")


def graph_line(eager: StoredTrial, replayed: StoredTrial) -> Line:
    """The peak of a replayed graph is no less than nine tenths of the eager one."""
    for trial in (eager, replayed):
        if trial.record.outcome is not Outcome.OK:
            why = trial.record.failure.message if trial.record.failure else ""
            return judged("memory of a graph", False, f"{trial.record.outcome.value}: {why}")
    share = replayed.record.peak_bytes / max(eager.record.peak_bytes, 1)
    text = f"a graph's peak is {share:.2f} of the eager one"
    return judged("memory of a graph", share >= GRAPH_SHARE, text, share=share)


MEASURE: Mapping[str, Any] = {"rounds": 1, "iterations": 4, "warmup_max": 6, "timeout_s": 120, "repeats": 0}


def timing_trial(
    here: Here, name: str, workload: Mapping[str, Any], toggles: Mapping[str, Any], **measure: Any
) -> StoredTrial:
    """Run one timing trial of an arm, in a process of its own."""
    command = SweepCommand(
        workload=dict(workload), toggles=dict(toggles), measure=MeasureConfig(**{**MEASURE, **measure})
    )
    manifest = plan.single_arm(command, here.device)
    folder = SweepFolder(here.folder / name)
    launch.prepare(folder, manifest, "")
    return PackRun(folder, manifest, manifest.packs[0]).single()


if __name__ == "__main__":
    die_with_parent()
    _stream = answers()
    print(json.dumps(meet(Path(sys.argv[1]), int(sys.argv[2]))), file=_stream, flush=True)
