"""The statistics on simulated machines: how often they are wrong, and that breaking a rule would show.

Seeds are fixed, so each test always gives the same answer; bounds leave room for the error of the number of
sweeps, so that another seed would pass as well. A *mutant* breaks one rule and must leave the bounds. The
tables with many more sweeps: tests/benchmarks/table_statistics.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from machines import CALM, SHARED, TRIALS, Machine, addressed, decided, hits, hits_of_pairs, paired

from perfsweep.pipelines.statistics import arm_variance
from perfsweep.pipelines.statistics.arm_variance import Level
from perfsweep.pipelines.statistics.estimates import precise_enough
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
    rounds: int = 10,
    counted: int | None = None,
    sweeps: int = 250,
    loud: Mapping[int, float] | None = None,
) -> np.ndarray:
    """[arms, arms] share of sweeps whose interval of an arm against another holds what was planted."""
    times = machine.sweep(np.random.default_rng(1), sweeps, EFFECTS, rounds, 1, servers, loud or {})
    return hits_of_pairs(times, EFFECTS, servers if counted is None else counted).mean(axis=0)


def test_mutant_an_estimator_that_ignores_servers_does_not_cover() -> None:
    assert np.nanmean(coverage(UNEVEN, servers=2, counted=0, sweeps=50)) < 0.8


def test_mutant_an_estimator_that_pools_noisy_arms_does_not_cover_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Level, "noisy", lambda self: np.zeros(len(self.squares), bool))
    assert np.nanmean(coverage(TRIALS, sweeps=100, loud={3: 3.0})[3]) < 0.9


def test_speed_that_depends_on_address_bits_is_covered_over_servers() -> None:
    times = addressed(np.random.default_rng(2), 150, EFFECTS, 10, 5)
    assert 0.92 <= hits(times, EFFECTS, 5).mean() <= 0.985
    same = addressed(np.random.default_rng(2), 40, EFFECTS, 10, 1)
    assert hits(same, EFFECTS, 1).mean() < 0.7, "one server is one draw of the addresses, whatever the rounds"


def calls(machine: Machine, sweeps: int = 150) -> float:
    """Share of sweeps of five servers and ten rounds that call +4 % among twelve arms."""
    planted = [math.log(1.04), *[0.0] * 11]
    times = machine.sweep(np.random.default_rng(3), sweeps, planted, 10, 1, 5)
    return float(np.mean([decided(one, 5).verdicts["1"].verdict is Verdict.SLOWER for one in times]))


def test_four_per_cent_of_twelve_arms_is_called_with_spikes_too() -> None:
    # .87 in the long run; two errors of 150 sweeps are .05.
    assert calls(SPIKY) >= 0.75


def test_mutant_least_squares_finds_nothing_among_spikes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_variance, "LEAST_DEGREES", 10**6)
    assert calls(SPIKY, sweeps=60) < 0.2


def false_claims(times: np.ndarray, servers: int = 0, each_alone: bool = False) -> float:
    """Share of sweeps of equal arms that call one; no margin, so that Holm alone has to hold the error."""

    def called(one: np.ndarray) -> bool:
        decisions = decided(one, servers, 0.0)
        if each_alone:
            return any((estimate.p or 1.0) <= 0.05 for estimate in decisions.estimates.values())
        return any(judged.verdict in CLAIMS for judged in decisions.verdicts.values())

    return float(np.mean([called(one) for one in times]))


@pytest.mark.parametrize(("machine", "servers"), [(UNEVEN, 5), (SPIKY, 10)])
def test_twelve_nulls_make_a_false_claim_in_at_most_seven_percent_of_sweeps(
    machine: Machine, servers: int
) -> None:
    times = machine.sweep(np.random.default_rng(8), 250, [0.0] * 12, 10, 1, servers)
    # .05 and a standard error and a half of 250 sweeps.
    assert false_claims(times, servers) <= 0.07


def test_mutant_twelve_nulls_without_holm_make_a_false_claim_in_a_fifth_of_sweeps_or_more() -> None:
    times = TRIALS.sweep(np.random.default_rng(8), 120, [0.0] * 12, 10, 1)
    assert false_claims(times, each_alone=True) > 0.2


PLANTED = math.log(0.97)


def test_a_planted_three_percent_has_the_right_sign_in_one_job_of_six_pairs() -> None:
    machine = Machine(drift=0.03, spikes=0.0)
    times = machine.sweep(np.random.default_rng(9), 300, [PLANTED], rounds=6, iterations=20)
    assert np.mean([decided(one).estimates["1"].log_ratio < 0 for one in times]) >= 0.97


def test_mutant_one_job_per_setting_gets_the_sign_of_three_percent_wrong() -> None:
    machine = Machine(drift=0.03, spikes=0.0)
    base, arm = (machine.turns(np.random.default_rng(seed), 1500, 6, 20).mean(axis=1) for seed in (10, 11))
    assert np.mean(np.log(arm * math.exp(PLANTED) / base) < 0) < 0.75


def rounds_until(d: np.ndarray, stop: Callable[[np.ndarray], bool]) -> np.ndarray:
    """The log ratios of the rounds that were run: six at least, and all if the rule never says stop."""
    return next((d[:n] for n in range(6, len(d)) if stop(d[:n])), d)


def test_stopping_on_the_half_width_keeps_the_coverage() -> None:
    times = Machine(noise=0.03, spikes=0.0).sweep(np.random.default_rng(12), 150, [0.03], rounds=40)
    runs = [
        rounds_until(np.log(arm / base), lambda d: precise_enough(paired(d), math.log(1.02)))
        for base, arm in times
    ]
    lengths = np.array([len(d) for d in runs])
    assert 7 <= np.median(lengths) <= 20, "the target is always or never reached, so the rule is not tested"
    # .95 less two points that stopping costs and two errors of .02.
    assert hits([np.exp([np.zeros(len(d)), d]) for d in runs], [0.03]).mean() >= 0.89


def test_mutant_stopping_on_p_finds_differences_between_equal_arms() -> None:
    times = CALM.sweep(np.random.default_rng(13), 60, [0.0], rounds=24)
    runs = [rounds_until(np.log(arm / base), lambda d: (paired(d).p or 1) <= 0.05) for base, arm in times]
    assert np.mean([(paired(d).p or 1) <= 0.05 for d in runs]) > 0.1


def test_mutant_arms_that_do_not_take_turns_differ_by_the_drift() -> None:
    turns = SHARED.turns(np.random.default_rng(14), 200, 20, 10)
    assert false_claims(np.stack([turns[:, :10], turns[:, 10:]], axis=1)) > 0.15


@pytest.mark.parametrize(("layout", "servers"), [(0.0, 5), (0.05, 10), (0.01, 2), (0.05, 2)])
def test_every_layout_is_covered(layout: float, servers: int) -> None:
    # 250 sweeps count for 1100 intervals or more: an error of .007 where the bounds leave .02.
    assert 0.93 <= np.nanmean(coverage(replace(TRIALS, process=layout), servers)) <= 0.97


def test_a_layout_too_small_for_two_servers_to_show_is_covered() -> None:
    # An F test at p < 0.1 in place of 0.2 finds so little of it that intervals cover .926.
    times = replace(TRIALS, process=0.005).sweep(np.random.default_rng(1), 1500, EFFECTS, 6, 1, 2)
    assert hits(times, EFFECTS, 2).mean() >= 0.93


@pytest.mark.parametrize("servers", [5, 2])
def test_a_noisy_arm_is_covered_against_every_other_as_arm_and_as_base(servers: int) -> None:
    covered = coverage(TRIALS, servers, sweeps=450, loud={3: 3.0})
    # Its own intervals count for 900: an error of .007 where the bounds leave .025.
    assert 0.925 <= np.nanmean(covered[3]) <= 0.98


@pytest.mark.parametrize(
    ("machine", "servers"),
    [(SPIKY, 2), (replace(TRIALS, drift=0.3), 5), (replace(TRIALS, correlation=0.9), 2)],
)
def test_disturbed_machines_are_covered(machine: Machine, servers: int) -> None:
    # 450 sweeps count for 2000 intervals or more: an error of .005 where the bounds leave .02.
    assert 0.93 <= np.nanmean(coverage(machine, servers, sweeps=450)) <= 0.97


def test_power_is_what_the_tables_say() -> None:
    assert calls(PAIRS, sweeps=1500) >= 0.90
