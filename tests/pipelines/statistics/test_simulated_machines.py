"""The statistics on simulated machines: how often they are wrong, and that breaking a rule would show.

Seeds are fixed, so each test always gives the same answer; bounds leave room for the error of the number of
sweeps, so that another seed would pass as well. A *mutant* breaks one rule and must leave the bounds. The
tables with many more sweeps: tests/benchmarks/table_statistics.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from machines import TRIALS, Machine, decided, hits_of_pairs

from perfsweep.pipelines.statistics import arm_variance
from perfsweep.pipelines.statistics.arm_variance import Level
from perfsweep.pipelines.statistics.verdicts import Verdict

pytestmark = pytest.mark.slow

CLAIMS = (Verdict.FASTER, Verdict.SLOWER)
EFFECTS = [-0.10, -0.03, 0.0, 0.0, 0.02, 0.10]
UNEVEN = replace(TRIALS, process=0.02)
PAIRS = replace(TRIALS, noise=0.02 / math.sqrt(2))
SPIKY = replace(PAIRS, spikes=0.06)


def coverage(
    machine: Machine,
    servers: int = 5,
    counted: int | None = None,
    sweeps: int = 150,
    loud: Mapping[int, float] | None = None,
) -> np.ndarray:
    """[arms, arms] share of sweeps whose interval of an arm against another holds what was planted."""
    times = machine.sweep(np.random.default_rng(1), sweeps, EFFECTS, 10, 1, servers, loud or {})
    return hits_of_pairs(times, EFFECTS, servers if counted is None else counted).mean(axis=0)


def test_mutant_an_estimator_that_ignores_servers_does_not_cover() -> None:
    assert np.nanmean(coverage(UNEVEN, servers=2, counted=0, sweeps=50)) < 0.8


def test_mutant_an_estimator_that_pools_noisy_arms_does_not_cover_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Level, "noisy", lambda self: np.zeros(len(self.squares), bool))
    assert np.nanmean(coverage(TRIALS, sweeps=100, loud={3: 3.0})[3]) < 0.9


def calls(machine: Machine, sweeps: int = 100) -> float:
    """Share of sweeps of five servers and ten rounds that call +4 % among twelve arms."""
    planted = [math.log(1.04), *[0.0] * 11]
    times = machine.sweep(np.random.default_rng(3), sweeps, planted, 10, 1, 5)
    return float(np.mean([decided(one, 5).verdicts["1"].verdict is Verdict.SLOWER for one in times]))


def test_four_per_cent_of_twelve_arms_is_called_with_spikes_too() -> None:
    # .87 in the long run; three errors of 100 sweeps are .10.
    assert calls(SPIKY) >= 0.75


def test_mutant_least_squares_finds_nothing_among_spikes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_variance, "LEAST_DEGREES", 10**6)
    assert calls(SPIKY, sweeps=30) < 0.2


def false_claims(times: np.ndarray, servers: int = 0, each_alone: bool = False) -> float:
    """Share of sweeps of equal arms that call one; no margin, so that Holm alone has to hold the error."""

    def called(one: np.ndarray) -> bool:
        decisions = decided(one, servers, 0.0)
        if each_alone:
            return any((estimate.p or 1.0) <= 0.05 for estimate in decisions.estimates.values())
        return any(judged.verdict in CLAIMS for judged in decisions.verdicts.values())

    return float(np.mean([called(one) for one in times]))


@pytest.mark.parametrize(("machine", "servers"), [(UNEVEN, 5), (SPIKY, 10)])
def test_twelve_nulls_make_a_false_claim_in_at_most_nine_percent_of_sweeps(
    machine: Machine, servers: int
) -> None:
    times = machine.sweep(np.random.default_rng(8), 120, [0.0] * 12, 10, 1, servers)
    # .05 and two standard errors of 120 sweeps.
    assert false_claims(times, servers) <= 0.09


def test_mutant_twelve_nulls_without_holm_make_a_false_claim_in_a_fifth_of_sweeps_or_more() -> None:
    times = TRIALS.sweep(np.random.default_rng(8), 60, [0.0] * 12, 10, 1)
    assert false_claims(times, each_alone=True) > 0.2


@pytest.mark.parametrize(("layout", "servers"), [(0.0, 5), (0.01, 2), (0.05, 2)])
def test_every_layout_is_covered(layout: float, servers: int) -> None:
    # 150 sweeps count for 660 intervals or more: an error of .009 where the bounds leave .02.
    assert 0.93 <= np.nanmean(coverage(replace(TRIALS, process=layout), servers)) <= 0.97


def test_a_noisy_arm_is_covered_against_every_other_as_arm_and_as_base() -> None:
    covered = coverage(TRIALS, sweeps=200, loud={3: 3.0})
    # Its own intervals count for 400: an error of .011 where the bounds leave .025.
    assert 0.925 <= np.nanmean(covered[3]) <= 0.98


@pytest.mark.parametrize(("machine", "servers"), [(SPIKY, 2), (replace(TRIALS, drift=0.3), 5)])
def test_disturbed_machines_are_covered(machine: Machine, servers: int) -> None:
    # 150 sweeps count for 660 intervals or more: an error of .009 where the bounds leave .02.
    assert 0.93 <= np.nanmean(coverage(machine, servers)) <= 0.97
