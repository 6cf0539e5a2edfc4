"""Every arm beside its oracles: values, bounds, and what never holds."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.analysis.arm_results import OracleDeviation, judge_quality
from perfsweep.workloads.api import Check, Comparator, Evidence

CHECKS = (
    Check("trace"),
    Check("excess", Comparator.AT_MOST, 1e-5, against="oracle"),
    Check("mismatches", Comparator.AT_MOST, 0.0, against="oracle"),
)


@pytest.mark.parametrize(("value", "holds"), [(1e-5, True), (1.1e-5, False), (math.nan, False), (-1.0, True)])
def test_a_figure_holds_up_to_its_bound_and_nan_never(value, holds):
    assert OracleDeviation("excess", value, 1e-5).holds is holds


def test_arms_show_their_deviations_from_oracles_in_declared_order_and_no_others():
    seen = {
        "a": Evidence(numbers={"mismatches": 0.0, "excess": 2e-5, "trace": 3.0}),
        "b": None,
        "c": Evidence(),
    }
    found = judge_quality({"a": "naive", "b": "broken", "c": "silent"}, CHECKS, seen.get)
    assert [(row.arm, [one.check for one in row.deviations]) for row in found] == [
        ("naive", ["excess", "mismatches"])
    ]
    assert [one.holds for one in found[0].deviations] == [False, True]
