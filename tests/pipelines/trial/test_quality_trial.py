"""A training that goes on until it reaches its target, or for as long as that may take."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tiny import BASELINE, Tiny, TinyConfig

from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.schema import Arm, Kind
from perfsweep.pipelines.store.trial_schema import TrialSpec
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.pipelines.trial.untimed import evidence_trial, quality_trial
from perfsweep.workloads.api import Context, Device
from perfsweep.workloads.errors import ConfigError

MEASURE = MeasureConfig(target=0.5, target_every=4, target_steps=60)


def train(folder: Path, measure: MeasureConfig, kind: Kind = Kind.QUALITY) -> dict[str, Any]:
    workload = Tiny({})
    workload.setup(TinyConfig(24), BASELINE, Context(Device(), scratch_dir=folder, cache_dir=folder))
    arm = Arm(id="a", label="baseline", levels=BASELINE)
    spec = TrialSpec(
        sweep="s",
        workload="tiny:Tiny",
        config={},
        arm=arm,
        kind=kind,
        pack="p000",
        round=None,
        attempt=0,
        measure=measure,
        code="",
        cache_dir="",
    )
    try:
        body = {Kind.QUALITY: quality_trial, Kind.EVIDENCE: evidence_trial}[kind]
        return body(workload, spec, folder, Device(), BufferedLog())
    finally:
        workload.close()


def test_it_ends_with_the_first_look_that_reaches_the_target(tmp_path: Path) -> None:
    found = train(tmp_path, MEASURE)
    *before, last = (found["course"][at]["last_loss"] for at in sorted(found["course"]))
    assert last <= 0.5 and all(loss > 0.5 for loss in before) and before
    assert found["reached"] == max(found["course"]) == 4 * len(found["course"])
    assert found["units"] == 24 * found["reached"]


def test_it_gives_up_at_the_last_look(tmp_path: Path) -> None:
    found = train(tmp_path, dataclasses.replace(MEASURE, target=-1.0, target_steps=18))
    assert sorted(found["course"]) == [4, 8, 12, 16]


@pytest.mark.parametrize("kind", [Kind.EVIDENCE, Kind.QUALITY])
def test_a_figure_that_the_workload_lacks_is_refused_by_name_before_anything_is_timed(
    tmp_path: Path, kind: Kind
) -> None:
    with pytest.raises(ConfigError, match=r"measure\.target_figure=beauty: .*choose from: last_loss, units"):
        train(tmp_path, dataclasses.replace(MEASURE, target_figure="beauty"), kind)
