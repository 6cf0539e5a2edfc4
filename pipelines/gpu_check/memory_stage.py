"""Stage 3: is memory limited, and is what a graph keeps counted?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perfsweep.pipelines.config.types import MeasureConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.gpu_check.answer import Here, Line, cases, judged, needs_gpu
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Outcome, SweepFolder
from perfsweep.pipelines.trial.failures import ON_OOM

GRAPH_SHARE = 0.9
"""Of the eager peak: a graph replays in memory that it never gives back."""


def examine(here: Here) -> Iterator[Line]:
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
