"""What a person waits for: planning and submitting a thousand arms, and the first iteration of a sweep."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import Bench
from budget import of_its_machine
from measured import prepared
from waiting import until

from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import JobState
from perfsweep.workloads.api import Device

ARMS = 1000


def large(bench: Bench) -> tuple[SweepFolder, Manifest, ClusterConfig]:
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
    folder, manifest = prepared(command)
    return folder, manifest, cluster


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[SlurmExecutor]:
    """Executors that have submitted, each of them left there."""
    found: list[SlurmExecutor] = []

    def stop_here(executor: SlurmExecutor, *_: object) -> dict[str, JobState]:
        found.append(executor)
        return {}

    monkeypatch.setattr(launch, "until_over", stop_here)
    return found


def spent_on_submitting(bench: Bench, submitted: list[SlurmExecutor]) -> tuple[Manifest, float]:
    """Plan and submit; processor time of this process and of Slurm's clients.

    On a shared machine the wall clock says how busy the others are.
    """
    wall, before = time.perf_counter(), _spent_until_now()
    folder, manifest, cluster = large(bench)
    launch.launch(folder, manifest, list(manifest.packs), cluster, Device())
    wall, spent = time.perf_counter() - wall, _spent_until_now() - before
    print(
        f"\n{len(manifest.arms)} arms in {len(manifest.packs)} packs planned and submitted: {wall:.2f} s"
        f" wall, {spent:.2f} s CPU"
    )
    (executor,) = submitted
    assert executor.journal.open_names() == {pack.id for pack in manifest.packs}
    tokens = {f"{s.array}" for s in executor.journal.submissions.values()}
    queue = bench.cluster.client("squeue", "-h", "-r", "-o", "%F").split()
    assert sum(array in tokens for array in queue) == len(manifest.packs), "Slurm has them all"
    executor.cancel()
    return manifest, spent


def _spent_until_now() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def test_a_thousand_arms_are_planned_and_submitted_in_two_seconds(
    bench: Bench, submitted: list[SlurmExecutor]
) -> None:
    manifest, spent = spent_on_submitting(bench, submitted)
    assert len(manifest.arms) == ARMS
    assert of_its_machine(spent) < 2.0


@pytest.mark.slow
def test_to_its_first_iteration_a_pack_spends_one_import_of_torch_and_a_second(bench: Bench) -> None:
    """Processor time, as of a machine with two cores: the pack and its server import side by side.

    The first step hangs, so that all of them stand still while they are asked.
    """
    torch = _spent_on_importing_torch()
    sweep = bench.start(*bench.sweep("toggles.trouble=hang"))
    runs = bench.folder / "runs" / "toy"
    until(lambda: any(map(_begun, runs.glob("trials/*/p000-counting-a0/status.json"))), "the first iteration")
    pack = int(json.loads((runs / "packs/p000/attempts/0.json").read_text())["pid"])
    element = _parent(pack)
    (server,) = _children(pack)
    (trial,) = _children(server)
    ours = _spent(element) + max(_spent(pack), _spent(server) + _spent(trial))
    sweep.send_signal(signal.SIGINT)
    sweep.communicate(timeout=120)
    bench.perfsweep("cancel", "runs/toy")
    print(f"\nto the first iteration {ours:.2f} s of a processor, import torch {torch:.2f} s")
    assert ours < torch + 1.0


def _spent_on_importing_torch() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _stat(pid: int) -> list[str]:
    """Fields of a process from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _spent(pid: int) -> float:
    """Processor time of a process and of those of its children that have ended, in seconds."""
    return sum(map(int, _stat(pid)[11:15])) / os.sysconf("SC_CLK_TCK")


def _begun(status: Path) -> bool:
    return _stage(status) not in ("", "setting up")


def _stage(file: Path) -> str:
    try:
        return str(json.loads(file.read_text())["stage"])
    except (OSError, ValueError, KeyError):
        return ""
