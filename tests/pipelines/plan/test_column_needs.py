"""A plan says before it is measured which of the chosen columns it cannot fill."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan.foreseen import unfilled_columns
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.workloads.api import Device

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


@pytest.mark.parametrize(
    ("columns", "iterations", "workload", "design"),
    [
        (["energy", "stall"], 10, None, ONE),
        (["p99"], 10, "toys.jobs:Countdown", DesignConfig("one_at_a_time")),
    ],
    ids=["other columns", "a job, whose length only it knows"],
)
def test_nothing_is_said_where_nothing_is_known_to_be_missing(
    command: Callable, columns: list[str], iterations: int, workload: str | None, design: DesignConfig
) -> None:
    chosen = {"workload": workload} if workload else {}
    planned = command(design, measure={"iterations": iterations}, **chosen)
    planned.report = ReportConfig(columns)
    assert unfilled_columns(make_plan(planned, Device())) == []
