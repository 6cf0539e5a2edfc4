"""Workloads of several ranks on two nodes of a real Slurm, each by one trial of a pack's own code.

That ranks compute what one process computes is tested with the workloads, in less time.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench import Bench, over
from scripted import SCRIPTS

from perfsweep.pipelines.config.types import ClusterConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder, TrialRecord, read_record
from perfsweep.slurm.jobs import JobState
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.slow

PACK = """
import sys
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.store.records import Kind, SweepFolder
folder = SweepFolder(sys.argv[1])
manifest = folder.read_manifest()
PackRun(folder, manifest, manifest.packs[0]).again(manifest.arm(sys.argv[2]), Kind(sys.argv[3]))
"""
"""One trial of one arm of a pack, in the allocation that this is."""


@dataclass(frozen=True)
class Done:
    """A trial that has ended, and what its ranks printed, by node."""

    record: TrialRecord
    printed: dict[str, str]


def trial(bench: Bench, workload: dict[str, Any]) -> Done:
    """Measure the only arm once, its ranks on two nodes."""
    short = {"rounds": 1, "iterations": 4, "warmup_max": 5, "timeout_s": 240.0}
    command = SweepCommand(
        workload=workload,
        measure=MeasureConfig(**short, placebo=1),  # type: ignore[arg-type]
        cluster=ClusterConfig(executor="slurm", nodes=2, gpus=0),
        sweep=SweepConfig(name="ranks"),
        runs=str(bench.folder / "runs"),
    )
    manifest = plan.make_plan(command, Device())
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    words = [sys.executable, "-c", PACK, str(folder.path), manifest.arms[-1].id, Kind.TIMING.value]
    job = bench.job("one", shlex.join(words), PYTHONPATH=bench.env({})["PYTHONPATH"], OMP_NUM_THREADS="1")
    ex = bench.executor(nodes=2, memory="3500M", cpus_per_task=1)
    ex.submit([job])
    assert over(ex, 300)["one"] is JobState.ENDED, f"{ex.notes()} {job.log.read_text()}"
    (place,) = folder.path.glob("trials/*/*/record.json")
    record = read_record(place.parent)
    assert record is not None and record.outcome is Outcome.OK, record
    return Done(record, {file.stem: file.read_text() for file in place.parent.glob("log*.txt")})


def test_a_script_finds_torchruns_variables_on_two_nodes(bench: Bench) -> None:
    script = {"name": "script", "path": str(SCRIPTS / "ddp.py"), "ranks": 2}
    done = trial(bench, script)
    assert done.record.ranks is not None and done.record.ranks.nodes == ("n1", "n2")
    assert done.record.units == 16 * done.record.iterations, "half a batch each"
    assert "rank 0 of 2, local 0" in done.printed["log"]
    assert "rank 1 of 2, local 0" in done.printed["log-n2"]
