"""The report of a job does not call its discarded first job warm-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import simulated

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)

WORKLOADS = {
    "toys.jobs:Countdown": (
        {"pause_ms": [1]},
        lambda levels: float(levels["pause_ms"]),
        "iteration by iteration; the discarded job is dotted.",
    ),
    "toys.spinner:Spinner": (
        {"work": ["single"]},
        lambda levels: 2.0 if levels["work"] == "double" else 1.0,
        "iteration by iteration; warm-up is dotted.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_caption_of_iterations_says_what_came_before_them(workload: str, tmp_path: Path) -> None:
    levels, time_of, caption = WORKLOADS[workload]
    command = SweepCommand(
        workload={"name": workload},
        measure=MeasureConfig(rounds=4, iterations=8, warmup_max=10),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="toy", designs=[DesignConfig("one_at_a_time", levels=levels)]),
        runs=str(tmp_path),
    )
    folder, _ = simulated(command, time_of, iterations=20)
    text = Path(api.open_sweep(folder.path).report()).read_text()
    assert caption in text
    assert ("warm-up" in text) == ("warm-up" in caption)
