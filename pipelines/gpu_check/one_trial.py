"""Single trials and sweeps that stages look at, through the same code that measures for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfsweep.pipelines.config.types import MeasureConfig, SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.gpu_check.answer import Here
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import SweepFolder

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
