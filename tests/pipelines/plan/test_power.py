"""What a plan can see, what it says about it, and which plans are refused."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import planned_sweeps
import pytest
from machines import decided, stopping_sweep

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan, power
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

FACTORIAL = DesignConfig(
    "factorial", levels={"work": ["single"], "sign": ["wrong"], "half": ["on"], "slab": [1, 2]}
)


def planned(command, *designs: DesignConfig, **measure) -> Manifest:
    return plan.make_plan(command(*designs, measure=measure), Device())


def test_the_plan_says_what_it_can_see(command) -> None:
    text = str(
        power.power(planned(command, DesignConfig("one_at_a_time", levels={"work": ["single"]}), rounds=6))
    )
    assert text == (
        "with 6 rounds you can see 3.9% (80 % power, one comparison, margin 1.0%,"
        " assuming 2.0% spread between pairs)"
    )
    found = power.Power(6, 6, 1, power.Spread(0.03, 0.0), 0.04, 0.0)
    assert str(found).endswith("you can see 4.1% (80 % power, one comparison, 3.0% spread between pairs)"), (
        "what was found is no assumption"
    )


@pytest.mark.slow
def test_an_effect_of_the_planned_size_is_called_in_four_sweeps_of_five(command) -> None:
    axes = {"work": ["single"], "sign": ["wrong"], "half": ["on"], "idle": ["on"], "slab": [2, 3]}
    found = power.power(planned(command, DesignConfig("one_at_a_time", levels=axes), rounds=4))
    assert found.comparisons == 6
    promised = float(re.search(r"you can see ([\d.]+)%", str(found))[1]) / 100  # type: ignore[index]
    rng, hits = np.random.default_rng(0), []
    for _ in range(300):
        log_times = rng.normal(0, found.spread.pair_sd / math.sqrt(2), (7, 4))
        log_times[1] += math.log1p(promised)
        hits.append(decided(np.exp(log_times)).verdicts["1"].verdict is Verdict.SLOWER)
    # .80, with the error of 300 sweeps (.023) and of an approximate formula.
    assert 0.74 < np.mean(hits) < 0.88


def test_a_contrast_of_many_arms_sees_more_than_a_pair(command) -> None:
    manifest = planned(command, FACTORIAL, rounds=6)
    found = power.power(manifest)
    main_effect = next(effect for effect in manifest.effects if effect.toggle == "work")
    # Sixteen arms: eight pairs, whose mean scatters by a factor of sqrt(8) less.
    assert power.scaled(main_effect, found) == pytest.approx(found.effect / math.sqrt(8))


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        ({"rounds": 2}, "measure.rounds=2: too few to decide: .* Use measure.rounds=3"),
        ({"rounds": 5, "precision": 0.01}, "plan measure.rounds=6 or more"),
    ],
)
def test_plans_that_can_decide_nothing_are_refused(command, measure: dict, words: str) -> None:
    manifest = planned(command, DesignConfig("one_at_a_time", levels={"work": ["single"]}), **measure)
    with pytest.raises(ConfigError, match=words):
        power.refuse_undecidable(manifest)


def test_six_rounds_may_end_by_precision_and_three_or_two_servers_decide(command) -> None:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    for measure in ({"rounds": 6, "precision": 0.01}, {"rounds": 3}, {"rounds": 6, "servers": 2}):
        power.refuse_undecidable(planned(command, design, **measure))
    assert power.power(planned(command, design, rounds=6, servers=2)).replications == 2
    assert power.power(planned(command, design, rounds=6, servers=1)).replications == 6, "for want of better"
    assert power.power(planned(command, design, rounds=6, placebo=2)).comparisons == 1, "copies are no choice"


def begun(done: int, **measure: Any) -> power.Forecast | None:
    """The forecast of two arms against a reference; pairs scatter by 2 %, and each trial takes 2 s."""
    manifest = stopping_sweep(3, 40, **measure)
    draws = np.random.default_rng(2).normal(0, 0.02 / math.sqrt(2), (3, 40))
    progress = planned_sweeps.progress(
        *(
            planned_sweeps.record(
                str(arm),
                round=number,
                units=1.0,
                region_ns=1e9 * math.exp(draws[arm, number]),
                started=5.0,
                ended=7.0,
            )
            for number in range(done)
            for arm in range(3)
        )
    )
    return power.forecast(manifest, progress)


def test_two_rounds_say_how_many_seconds_the_precision_takes_and_one_says_nothing() -> None:
    assert begun(1, precision=0.01) is None
    early, late = begun(2, precision=0.01), begun(12, precision=0.01)
    assert early is not None and late is not None
    # (2 x 2 % / 1 %)^2 = 16 rounds of three trials of 2 s: 4 are left after twelve, give or take.
    assert 0 < late.seconds < 60 and late.half_width == pytest.approx(0.01, rel=0.1)
    there = pytest.approx(0.01 * math.sqrt(16 / 40), rel=0.1)
    assert begun(40, precision=0.01) == power.Forecast(0.0, there), "more than were needed"
    assert str(power.Forecast(40.4, math.log(1.01))) == "about 40 s to +-1.0%"


def test_a_budget_ends_what_is_foreseen_with_the_width_that_it_pays_for() -> None:
    """Twelve rounds of three trials have taken 72 s."""
    free, bounded = begun(12, precision=0.001), begun(12, precision=0.001, budget_s=90.0)
    assert free is not None and bounded is not None
    assert free.seconds == 28 * 3 * 2.0, "all forty rounds"
    assert bounded.seconds == pytest.approx(18.0)
    assert bounded.half_width == pytest.approx(free.half_width * math.sqrt(40 / 15))
    assert begun(12, precision=0.001, budget_s=60.0).seconds == 0.0
    assert begun(12, precision=0.01, budget_s=1e6) == begun(12, precision=0.01)
