"""What decisions count: placebos and comparisons. How often they err: test_simulated_machines."""

from __future__ import annotations

import numpy as np
import pytest
from machines import decided, effects_of, rounds_of

from perfsweep.pipelines.analysis.effect_result import Decisions, decide
from perfsweep.pipelines.statistics.verdicts import Judgement, Verdict
from perfsweep.pipelines.store.records import PLACEBO


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
