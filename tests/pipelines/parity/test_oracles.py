"""An oracle judges the arm alone; a reference that fails it may be left by meeting it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from evidences import tensor_evidence

from perfsweep.pipelines.parity.deviations import judge
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import Check, Comparator, Evidence, Parity

EXACT, TOLERANCE = Parity.EXACT, Parity.TOLERANCE
IDENTICAL, WITHIN = ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE
DIFFERENT, UNCHECKED = ParityVerdict.DIFFERENT, ParityVerdict.UNCHECKED

ORACLE = Check("excess", Comparator.AT_MOST, 1e-5, against="oracle")


def test_an_oracle_without_a_bound_allows_nothing() -> None:
    check = Check("excess", Comparator.AT_MOST, against="oracle")
    assert judge(None, tensor_evidence(excess=[1e-9]), [check], TOLERANCE, {}).verdict is DIFFERENT
    assert judge(None, tensor_evidence(excess=[0.0]), [check], TOLERANCE, {}).verdict is WITHIN


def oracle_evidence(excess: float, x: float) -> Evidence:
    return Evidence({"x": np.array([x])}, {"excess": excess})


@pytest.mark.parametrize(
    ("reference", "arm", "expected", "words"),
    [
        # (excess over the oracle's optimum, x): the oracle allows an excess of 1e-5.
        ((1e-3, 1.0), (1e-6, 1.5), WITHIN, "meets every oracle"),
        ((1e-3, 1.0), (1e-3, 1.0), IDENTICAL, "the baseline itself fails an oracle"),
        ((1e-3, 1.0), (1e-3, 1.0 + 1e-14), WITHIN, "the baseline itself fails an oracle"),
        ((1e-3, 1.0), (1e-3, 1.5), DIFFERENT, "departs from the baseline"),
        ((1e-6, 1.0), (1e-3, 1.0), DIFFERENT, "fails its oracle"),
        ((1e-6, 1.0), (1e-6, 1.5), DIFFERENT, "departs from the baseline"),
        ((1e-3, 1.0), (math.nan, 1.0), DIFFERENT, "fails its oracle"),
    ],
)
def test_an_arm_may_leave_a_reference_that_fails_the_oracle_only_by_meeting_it(
    reference: tuple[float, float], arm: tuple[float, float], expected: ParityVerdict, words: str
) -> None:
    result = judge(oracle_evidence(*reference), oracle_evidence(*arm), [Check("x"), ORACLE], EXACT, {})
    assert result.verdict is expected
    assert words in result.reason


def test_a_broken_arm_is_not_saved_by_a_reference_that_fails_the_oracle() -> None:
    result = judge(
        oracle_evidence(1e-3, 1.0), oracle_evidence(1e-6, math.nan), [Check("x"), ORACLE], EXACT, {}
    )
    assert result.verdict is DIFFERENT


def test_without_a_reference_nothing_but_oracles_is_judged() -> None:
    result = judge(None, oracle_evidence(0.0, 1.0), [Check("x"), ORACLE], EXACT, {})
    assert (result.verdict, result.reason) == (UNCHECKED, "no evidence to compare for x")
