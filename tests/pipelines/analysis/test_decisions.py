"""Whole sweeps on simulated machines, judged by the code that judges real ones: how often it is wrong."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from machines import CALM, PROCESSES, SHARED, Machine, decided, effects_of, rounds_of

from perfsweep.pipelines.analysis import judging
from perfsweep.pipelines.analysis.decisions import Decisions, decide
from perfsweep.pipelines.statistics.estimates import precise_enough
from perfsweep.pipelines.statistics.verdicts import Judgement, Verdict
from perfsweep.pipelines.store.records import PLACEBO

CLAIMS = (Verdict.FASTER, Verdict.SLOWER)


def silent(times: np.ndarray, servers: int = 0, margin: float = 0.01) -> bool:
    """Whether no arm is called faster or slower."""
    return not any(found.verdict in CLAIMS for found in decided(times, servers, margin).verdicts.values())


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "arms"), [(CALM, 1), (SHARED, 6)])
def test_equal_arms_are_called_different_in_at_most_five_per_cent_of_sweeps(
    machine: Machine, arms: int
) -> None:
    sweeps = machine.sweep(np.random.default_rng(21), 300, [0.0] * arms, rounds=8)
    # .05 and one standard error of 300 sweeps; the margin of 1 % makes it far less where the noise is small.
    assert np.mean([not silent(times) for times in sweeps]) <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("servers", [2, 5])
def test_equal_arms_on_servers_are_called_different_in_at_most_five_per_cent_of_sweeps(servers: int) -> None:
    sweeps = PROCESSES.sweep(np.random.default_rng(22), 300, [0.0] * 6, rounds=5 * servers, servers=servers)
    assert np.mean([not silent(times, servers) for times in sweeps]) <= 0.06


@pytest.mark.slow
def test_mutant_turns_taken_for_fresh_processes_call_equal_arms_different() -> None:
    sweeps = PROCESSES.sweep(np.random.default_rng(22), 100, [0.0] * 6, rounds=20, servers=2)
    assert np.mean([not silent(times, 0, margin=0.0) for times in sweeps]) > 0.3


@pytest.mark.slow
def test_intervals_over_servers_cover_planted_effects() -> None:
    servers, planted = 3, [-0.10, 0.0, 0.03]
    sweeps = PROCESSES.sweep(np.random.default_rng(23), 400, planted, rounds=5 * servers, servers=servers)
    hits = []
    for times in sweeps:
        for found, truth in zip(decided(times, servers).estimates.values(), planted, strict=True):
            assert found.interval is not None and found.n in (servers, 5 * servers), "by what an F test finds"
            hits.append(found.interval.low <= truth <= found.interval.high)
    # 1200 intervals that share a base in threes count for about 600: .95 and two standard errors of .009.
    assert 0.93 <= np.mean(hits) <= 0.975


def rounds_until_precise(times: np.ndarray, target: float, first: int = 6) -> int:
    """How many rounds of [arms, rounds] an adaptive sweep measures."""
    effects = effects_of(len(times))
    for rounds in range(first, times.shape[1]):
        found = decide(rounds_of(times[:, :rounds]), effects, {}, 0.01).estimates
        if all(precise_enough(one, target) for one in found.values()):
            return rounds
    return times.shape[1]


@pytest.mark.slow
def test_stopping_when_every_interval_is_narrow_keeps_the_coverage() -> None:
    planted = [0.03, -0.05]
    sweeps = Machine(noise=0.05, spikes=0.0).sweep(np.random.default_rng(24), 60, planted, rounds=30)
    lengths = [rounds_until_precise(times, math.log(1.02)) for times in sweeps]
    assert 7 <= np.median(lengths) <= 25, "the target is always or never reached, so the rule is not tested"
    hits = []
    for times, rounds in zip(sweeps, lengths, strict=True):
        for found, truth in zip(decided(times[:, :rounds]).estimates.values(), planted, strict=True):
            hits.append(found.interval is not None and found.interval.low <= truth <= found.interval.high)
    # .95 less a point or two that stopping costs and two standard errors: .04 of 120 intervals.
    assert 0.90 <= np.mean(hits) <= 0.99


@pytest.mark.slow
def test_a_planted_effect_is_called_by_its_sign_and_nothing_else_is() -> None:
    sweeps = CALM.sweep(np.random.default_rng(25), 60, [-0.2, 0.0, 0.2], rounds=8, iterations=20)
    found = [[one.verdict for one in decided(times).verdicts.values()] for times in sweeps]
    assert all(verdicts[0] is Verdict.FASTER and verdicts[2] is Verdict.SLOWER for verdicts in found)
    assert sum(verdicts[1] in CLAIMS for verdicts in found) <= 3


@pytest.mark.parametrize(("server", "replications"), [([7, 7, 8, 8], 2), ([7] * 4, 4), ([None] * 4, 4)])
def test_trials_are_counted_by_the_server_they_record(server: list, replications: int) -> None:
    columns = {"pack": ["p"] * 4, "round": [0, 1, 2, 3], "server": server}
    integers = {"server": pl.Int64}
    arms = [
        pl.DataFrame(
            {**columns, "arm": [arm] * 4, "peak_bytes": [1.0, 2.0, 3.0, 4.0]}, schema_overrides=integers
        )
        for arm in ("a", "b")
    ]
    assert judging.rounds_of(pl.concat(arms), "peak_bytes").replications == replications


def evenly(*log_ratios: float, placebos: int = 0) -> Decisions:
    """Six rounds of arms whose log ratios to the first scatter by a thousandth, the last arms placebos."""
    scatter = np.linspace(-1e-3, 1e-3, 6)
    times = [np.zeros(6), *(ratio + scatter[:: (-1) ** n] for n, ratio in enumerate(log_ratios))]
    return decided(np.exp(np.array(times)), placebos=placebos)


def test_what_placebos_show_is_the_floor_of_all_and_each_is_held_against_the_others() -> None:
    found = evenly(0.05, 0.2, 0.03, -0.1, placebos=2)
    interval = found.estimates["4"].interval
    assert interval is not None and found.floor == pytest.approx(-interval.low) and found.controls == 2
    verdicts = {name: one.verdict for name, one in found.verdicts.items()}
    assert verdicts["1"] is Verdict.UNDECIDED and verdicts["2"] is Verdict.SLOWER
    assert verdicts["3"] is Verdict.UNDECIDED, "the other placebo lies further off"
    assert verdicts["4"] is Verdict.FASTER, "the other placebo lies nearer"
    assert evenly(0.05).floor == 0.0 and evenly(0.05).controls == 0


def test_placebos_are_no_comparisons_and_withheld_effects_are_not_counted() -> None:
    effects = effects_of(5)
    effects[-1] = effects[-1].model_copy(update={"design": PLACEBO})
    times = rounds_of(np.exp(np.random.default_rng(3).normal(0, 0.01, (5, 6))))
    withheld = {name: Judgement(Verdict.DIFFERENT, None) for name in ("1", "4", "nobody")}
    found = decide(times, effects, withheld, 0.01)
    assert found.verdicts["1"].verdict is Verdict.DIFFERENT
    assert found.verdicts["4"].verdict is not Verdict.DIFFERENT, "a control is always looked at"
    own, control = found.derivation(effects[1], times), found.derivation(effects[-1], times)
    assert own is not None and control is not None
    assert (own.comparisons, control.comparisons, own.floor) == (2, 1, found.floor)
    assert own.estimate == found.estimates["2"] and own.judgement == found.verdicts["2"]
    assert own.pairs == times.pairs(effects[1]) and len(own.pairs) == 6
