"""Figures that claims speak of: counted, derived from timings, or the ratio of two."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.analysis.rulings import figure_value, is_rule
from perfsweep.pipelines.store.records import Kind, Outcome, TrialRecord
from perfsweep.workloads.api import Claim


def timing(region_ns: int, iterations: int = 10, units: float = 100.0) -> TrialRecord:
    shared = {
        "arm": "a",
        "kind": Kind.TIMING,
        "pack": "p000",
        "round": 0,
        "attempt": 0,
        "outcome": Outcome.OK,
    }
    return TrialRecord(**shared, region_ns=region_ns, iterations=iterations, units=units)


TIMINGS = [timing(10**9), timing(3 * 10**9), timing(2 * 10**9)]
COUNTS = {"passes": 200.0, "slabs": 2.0, "none": 0.0, "device_busy_ns": 4e6}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("passes", 200.0),
        ("unknown", None),
        ("passes/slabs", 100.0),
        ("passes/none", None),
        ("none/none", None),
        ("none/slabs", 0.0),
        ("passes/unknown", None),
        ("passes+slabs/slabs", 201.0),
        ("passes*slabs/slabs", 200.0),
        ("passes/slabs*slabs", 50.0),
        ("passes/slabs/slabs", 50.0),
        ("passes*unknown", None),
        ("seconds_per_iteration", 0.2),
        ("device_busy_share", 0.2),
        ("seconds_per_iteration/slabs", 0.1),
    ],
)
def test_a_figure_is_counted_derived_or_a_ratio(name: str, value: float | None) -> None:
    assert figure_value(name, COUNTS.get, TIMINGS) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("name", ["seconds_per_iteration", "device_busy_share"])
def test_nothing_is_derived_from_nothing(name: str) -> None:
    assert figure_value(name, COUNTS.get, []) is None
    assert figure_value("device_busy_share", {}.get, TIMINGS) is None


def test_a_trial_that_did_nothing_gives_no_time_and_a_device_that_did_nothing_a_share() -> None:
    nothing = timing(10**9, iterations=0, units=0.0)
    for name in ("seconds_per_iteration", "device_busy_share"):
        assert figure_value(name, COUNTS.get, [nothing]) is None
        assert figure_value(name, COUNTS.get, [nothing, *TIMINGS]) == pytest.approx(0.2)
    assert figure_value("device_busy_share", {"device_busy_ns": 0.0}.get, TIMINGS) == 0


@pytest.mark.parametrize("own", [{"figure": "passes"}, {"low": 2.0}, {"high": 2.0}])
def test_a_claim_with_a_figure_or_a_bound_is_no_rule(own: dict) -> None:
    assert is_rule(Claim("measure first", "guide", "1", (), kind="predicate"))
    assert not is_rule(Claim("measure first", "guide", "1", (), kind="predicate", **own))
