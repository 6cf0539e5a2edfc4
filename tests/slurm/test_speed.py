"""What a person waits for: planning and submitting a thousand arms, and the first iteration of a sweep."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from bench import Bench
from waiting import until

from pipelines.config.types import ClusterConfig, DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from pipelines.execution import launch
from pipelines.plan import plan
from pipelines.store.records import Manifest, SweepFolder
from slurm.executor import SlurmExecutor
from slurm.jobs import JobState
from workloads.api import Device

ARMS = 1000


def thousand(bench: Bench) -> tuple[SweepFolder, Manifest, ClusterConfig]:
    """Plan and prepare a sweep of a thousand arms."""
    conf = str(bench.cluster.settings.conf)
    # Held: the queue takes all of it and nothing runs.
    cluster = ClusterConfig(executor="slurm", slurm_conf=conf, gpus=0, sbatch=["--hold"], cpus_per_task=1)
    command = SweepCommand(
        workload={"name": "toys.ladder:Ladder"},
        measure=MeasureConfig(rounds=6),
        cluster=cluster,
        sweep=SweepConfig(
            name="many", designs=[DesignConfig("ladder", levels={"size": list(range(2, ARMS + 1))})]
        ),
        runs=str(bench.folder / "runs"),
    )
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    return folder, manifest, cluster


def test_a_thousand_arms_are_planned_and_submitted_in_two_seconds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU time of this process: on a shared machine the wall clock says how busy the others are."""
    submitted: list[SlurmExecutor] = []

    def stop_here(executor: SlurmExecutor, *_: object) -> dict[str, JobState]:
        submitted.append(executor)
        return {}

    monkeypatch.setattr(launch, "until_over", stop_here)
    wall, cpu = time.perf_counter(), time.process_time()
    folder, manifest, cluster = thousand(bench)
    launch.launch(folder, manifest, list(manifest.packs), cluster, Device())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"\n{len(manifest.arms)} arms in {len(manifest.packs)} packs planned and submitted: {wall:.2f} s"
        f" wall, {cpu:.2f} s CPU"
    )
    assert len(manifest.arms) == ARMS
    (executor,) = submitted
    assert executor.journal.open_names() == {pack.id for pack in manifest.packs}
    tokens = {f"{s.array}" for s in executor.journal.submissions.values()}
    queue = bench.cluster.client("squeue", "-h", "-r", "-o", "%F").split()
    assert sum(array in tokens for array in queue) == len(manifest.packs), "Slurm has them all"
    assert cpu < 2.0
    executor.cancel()


@pytest.mark.slow
def test_the_time_from_submission_to_first_iteration_can_be_told(bench: Bench) -> None:
    """From sbatch's answer to the first trial past its set-up, on an idle cluster.

    Printed, not bounded: a loaded machine's times say nothing about ours.
    """
    to_pack, to_iteration = _wait(bench)
    print(f"\nsubmission to start of the pack {to_pack:.2f} s, to the first iteration {to_iteration:.2f} s")
    assert to_pack <= to_iteration


def _wait(bench: Bench) -> tuple[float, float]:
    """Seconds from the submission of a sweep to the start of its pack, and to its first iteration."""
    runs = bench.folder / "runs" / "toy"
    sweep = bench.start(*bench.sweep("measure.rounds=2", "measure.look=true"))
    until(
        lambda: any(_begun(file) for file in runs.glob("trials/*/p000-counting-a0/status.json")),
        "the first iteration",
    )
    (status,) = (file for file in runs.glob("trials/*/p000-counting-a0/status.json") if _begun(file))
    iteration = status.stat().st_mtime  # written as the stage changed
    lines = [json.loads(line) for line in (runs / "submissions.jsonl").read_text().splitlines()]
    submitted = next(line["time"] for line in lines if line["event"] == "submitted")
    started = json.loads(next(runs.glob("submissions/*/0.start-0.json")).read_text())["time"]
    sweep.communicate(timeout=120)
    return started - submitted, iteration - submitted


def _begun(status: Path) -> bool:
    return _stage(status) not in ("", "setting up")


def _stage(file: Path) -> str:
    try:
        return str(json.loads(file.read_text())["stage"])
    except (OSError, ValueError, KeyError):
        return ""
