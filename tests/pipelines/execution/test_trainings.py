"""A sweep with a target, for real: packs train every arm with every seed, once; the tables have the steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from measured import compared

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution.missing_trials import untrained
from perfsweep.pipelines.store.progress_read import read_progress

SEEDS = 3
MEASURE = {
    "rounds": 3,
    "target": 10.0,
    "target_figure": "count",  # of the toy: one more with each step
    "target_better": "higher",
    "target_every": 4,
    "target_steps": 40,
    "target_seeds": SEEDS,
}


@pytest.mark.slow
def test_arms_are_trained_to_the_target_once_and_their_steps_stand_in_the_tables(command: Callable) -> None:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    planned = api.plan(command(design, measure=MEASURE), "")
    folder, manifest = planned.sweep.folder, planned.sweep.manifest
    assert untrained(manifest, read_progress(folder, manifest)) == {"p000"}
    assert api.measure(planned) == {}
    assert untrained(manifest, read_progress(folder, manifest)) == set()
    comparison = compared(folder, manifest)
    assert {arm.label: arm.quantities["target_steps"] for arm in comparison.arms} == {
        "baseline": 12.0,  # the first look at ten or more
        "work=single": 12.0,
    }
    (effect,) = comparison.effects
    assert effect.quantities["target_steps"].ratio == pytest.approx(1.0)
    assert len(read_progress(folder, manifest).trainings) == 2 * SEEDS
