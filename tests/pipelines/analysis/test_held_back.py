"""Effects about which nothing is said, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from perfsweep.pipelines.analysis.arm_records import Beat
from perfsweep.pipelines.analysis.decisions import HoldingBack
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device

SCHEMA = {"arm": pl.String, "disturbed": pl.String}


@pytest.fixture
def planned(command: Callable) -> Callable[..., Manifest]:
    def make(**measure: object) -> Manifest:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
        return plan.make_plan(command(design, measure={"rounds": 8, **measure}), Device())

    return make


QUIET_LOOP = Beat(irregular=False, each=0.0, share=0.0)


def judged(manifest: Manifest, rounds: int = 8, beats: Sequence[Beat] = (QUIET_LOOP, QUIET_LOOP), **of: str):
    """How the effect is judged, of trials of its arm and base: what disturbed them."""
    (effect,) = manifest.effects
    ((arm, base),) = effect.pairs
    rows = [({"arm": arm, "base": base}[side.rstrip("0123456789")], met) for side, met in of.items()]
    used = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    records: Any = SimpleNamespace(beat=dict(zip((arm, base), beats, strict=True)).__getitem__)
    return HoldingBack(manifest, used, records).of(effect, rounds)


QUIET, THROTTLED = "", "throttled"


@pytest.mark.parametrize(
    ("trials", "held"),
    [
        ({"arm": QUIET, "base": QUIET}, False),
        ({"arm": THROTTLED, "base": THROTTLED}, True),
        ({"arm": THROTTLED, "base": QUIET}, False),
        ({"arm": THROTTLED, "arm1": QUIET, "base": THROTTLED}, False),
    ],
)
def test_an_effect_is_held_back_where_every_trial_of_all_its_arms_was_disturbed(
    planned, trials: dict, held: bool
) -> None:
    found = judged(planned(), **trials)
    if held:
        assert (found.verdict, found.code) == (Verdict.HELD_BACK, ReasonCode.ALL_DISTURBED)
        assert found.reason == "every trial of its arms was disturbed"
    else:
        assert found is None


@pytest.mark.parametrize(("rounds", "reason"), [(1, "one round has no interval"), (2, None), (8, None)])
def test_an_effect_of_too_few_rounds_is_held_back(planned, rounds: int, reason: str | None) -> None:
    found = judged(planned(), rounds, arm=QUIET, base=QUIET)
    assert (found and (found.reason, found.code)) == (reason and (reason, ReasonCode.TOO_FEW_ROUNDS))


def test_a_look_is_a_look_whatever_it_saw(planned) -> None:
    found = judged(planned(look=True), arm=QUIET, base=QUIET)
    assert (found.code, found.reason) == (ReasonCode.ONLY_A_LOOK, "only a look (measure.look)")


def beats(irregular: bool, *each: float) -> list[Beat]:
    """Of arm and base: so many heavy iterations a region, which are half of its time."""
    return [Beat(irregular, number, 0.5) for number in each]


@pytest.mark.parametrize(
    ("of_both", "held"),
    [
        (beats(True, 3, 2), True),
        (beats(True, 2, 3), True),
        (beats(True, 1, 0), True),
        (beats(True, 3, 3), False),
        (beats(True, 300, 299), False),  # a difference below the margin
        (beats(True, 0, 0), False),
        (beats(False, 3, 2), False),  # spikes of a loop whose evidence shows none
    ],
)
def test_arms_whose_regions_held_unlike_numbers_of_heavy_iterations_are_held_back(
    planned, of_both: list[Beat], held: bool
) -> None:
    found = judged(planned(), beats=of_both, arm=QUIET, base=QUIET)
    assert (found is not None) == held
    if found:
        assert found.code is ReasonCode.UNLIKE_BEATS
        assert "unlike numbers of heavy iterations" in found.reason and "measure.iterations" in found.reason
