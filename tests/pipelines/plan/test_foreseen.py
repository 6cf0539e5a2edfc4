"""What a plan says and refuses before it is measured: columns, targets, and batches from memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan.foreseen import unfilled_columns
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.needed_once import trained_arms
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

ONE = DesignConfig("one_at_a_time", levels={"work": ["single"]})
SAID = (
    "report.columns=[p50,p99]: percentiles need 300 steps in each round and are withheld where there are"
    " fewer; measure.iterations=300 would do"
)


@pytest.mark.parametrize("iterations", [299, None], ids=["299 steps", "as many as region_s says"])
def test_percentiles_of_too_few_steps_are_told_before_anything_is_measured(
    command: Callable, iterations: int | None
) -> None:
    planned = command(ONE, measure={"iterations": iterations, "rounds": 6})
    planned.report = ReportConfig(["p50", "stall", "p99"])
    assert SAID in api.plan(planned, "").notices


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        (["target", "stall"], "report.columns=[target]: no target is named"),
        (["cost", "job_cost"], "report.columns=[cost,job_cost]: no price is given; give cluster.price"),
    ],
)
def test_columns_whose_setting_is_not_given_are_told_with_the_setting(
    command: Callable, columns: list[str], missing: str
) -> None:
    planned = command(ONE)
    planned.report = ReportConfig(columns)
    (notice,) = unfilled_columns(make_plan(planned, Device()))
    assert notice.startswith(missing)


OF_DIGITS = DesignConfig("one_at_a_time", levels={"zero_grad": ["none"]})


def planned(command: Callable, **measure: object) -> Manifest:
    return make_plan(command(OF_DIGITS, workload="digits", measure=measure), Device())


def test_a_workload_without_a_loader_says_so_and_the_sweep_goes_on(command: Callable) -> None:
    manifest = make_plan(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"stall": True}), Device()
    )
    (row,) = manifest.refused
    assert row.reason == "measure.stall: Spinner has no loader whose batches could be kept"
    assert len(manifest.arms) == 2


def test_arms_to_choose_from_are_trained_to_the_target_and_no_others(command: Callable) -> None:
    manifest = planned(command, target=0.9, stall=True, placebo=1)
    (chosen,) = [one for one in manifest.effects if one.design == "one_at_a_time"]
    assert set(trained_arms(manifest)) == set(chosen.pairs[0])


def test_a_job_has_no_target(command: Callable) -> None:
    jobs = command(DesignConfig("one_at_a_time"), workload="toys.jobs:Countdown", measure={"target": 1.0})
    with pytest.raises(ConfigError, match=r"measure\.target=1: Countdown is a job"):
        make_plan(jobs, Device())


def test_a_target_needs_room_for_its_looks(command: Callable) -> None:
    with pytest.raises(ConfigError, match=r"measure\.target_steps=20 leaves no room for 3 looks"):
        planned(command, target=0.9, target_steps=20, target_every=10, target_looks=3)
