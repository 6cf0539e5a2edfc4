"""What the kernel and the machine did is said where it is part of a difference in time."""

from __future__ import annotations

import polars as pl
import pytest

from perfsweep.pipelines.analysis.notes import kernel_notes, machine_notes

NAMES = {arm: arm.upper() for arm in "abcdefg"}
SECOND_NS = 10**9


def trials(*rows: tuple[str, float, float], iterations: int = 10, region_s: float = 1.0) -> pl.DataFrame:
    """A trial for each row: arm, minor faults an iteration, share of the time in the kernel."""
    return pl.DataFrame(
        [
            (arm, iterations, region_s, round(faults * iterations), round(share * region_s * SECOND_NS))
            for arm, faults, share in rows
        ],
        schema=["arm", "iterations", "region_s", "minor_faults", "system_ns"],
        orient="row",
    )


def notes(*rows: tuple[str, float, float], **measured: float) -> list[str]:
    return kernel_notes(trials(*rows, **measured), NAMES, "a")  # type: ignore[arg-type]


def test_arms_that_fault_more_or_less_than_the_reference_are_named_the_furthest_first() -> None:
    rows = [("a", 1000, 0), ("b", 1010, 0), ("c", 900, 0), ("d", 3000, 0)]
    assert notes(*rows) == [
        "minor faults an iteration: 1,000 of A, 3,000 of D, 900 of C; a fault costs 0.5 to 3 us"
    ]


def test_arms_that_spend_more_or_less_time_in_the_kernel_are_named() -> None:
    rows = [("a", 0, 0.20), ("b", 0, 0.205), ("c", 0, 0.1), ("d", 0, 0.5)]
    assert notes(*rows, region_s=2.0) == ["system time: 20 % of A's time, 50 % of D's, 10 % of C's"]


def test_four_arms_are_named_at_most() -> None:
    (line,) = notes(*[(arm, 100.0 * place, 0) for place, arm in enumerate("abcdefg")])
    assert line.startswith("minor faults an iteration: 0 of A, 600 of G, 500 of F, 400 of E, 300 of D;")


def test_the_median_of_trials_counts() -> None:
    assert notes(("a", 0, 0), ("a", 0, 0), ("a", 900, 0.9), ("b", 5, 0.005)) == []


def test_without_the_reference_nothing_is_said() -> None:
    assert notes(("b", 0, 0), ("c", 900, 0.9)) == []


@pytest.mark.parametrize("measured", [{"iterations": 0}, {"region_s": 0.0}])
def test_trials_that_measured_nothing_say_nothing(measured: dict) -> None:
    assert notes(("a", 0, 0), ("b", 900, 0.9), **measured) == []


def calibrated(*packs: tuple[str, list[int | None]]) -> list[str]:
    rows = [(pack, ns) for pack, every in packs for ns in every]
    schema = {"pack": pl.String, "calibration_ns": pl.Int64}
    return machine_notes(pl.DataFrame(rows, schema=schema, orient="row"))


def test_a_machine_that_was_slow_before_some_trials_is_told_by_the_usual_time_of_its_node() -> None:
    found = calibrated(("p0", [100, 100, 100, 130, 106]), ("p1", [200, 200, 200, None]))
    assert found == ["the calibration loop ran up to 30% slower before 2 of 9 timing trials"]


def test_a_machine_as_fast_as_usual_is_no_news() -> None:
    assert calibrated(("p0", [100, 100, 104, 50, 0])) == []
    assert calibrated(("p0", [None, None])) == []
