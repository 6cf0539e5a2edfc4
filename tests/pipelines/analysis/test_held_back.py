"""Effects about which nothing is said, and why."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from perfsweep.pipelines.analysis.decisions import HoldingBack, clock_of
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.statistics.clocks import Clock
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device

SCHEMA = {"arm": pl.String, "disturbed": pl.String, "crowded": pl.Boolean, "alone": pl.Boolean}


@pytest.fixture
def planned(command: Callable) -> Callable[..., Manifest]:
    def make(**measure: object) -> Manifest:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
        return plan.make_plan(command(design, measure={"rounds": 8, **measure}), Device())

    return make


def judged(manifest: Manifest, rounds: int = 8, clock: Clock = Clock.WALL, **of: tuple[str, bool, bool]):
    """How the effect is judged, of trials of its arm and base: what disturbed them, crowded, alone."""
    (effect,) = manifest.effects
    ((arm, base),) = effect.pairs
    rows = [({"arm": arm, "base": base}[side.rstrip("0123456789")], *met) for side, met in of.items()]
    used = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return HoldingBack(manifest, used, clock).of(effect, rounds)


QUIET, THROTTLED, CROWDED = ("", False, True), ("throttled", False, True), ("crowded", True, True)
CROWDED_THREADS = ("crowded", True, False)


@pytest.mark.parametrize(
    ("trials", "clock", "held"),
    [
        ({"arm": QUIET, "base": QUIET}, Clock.WALL, False),
        ({"arm": THROTTLED, "base": THROTTLED}, Clock.WALL, True),
        ({"arm": THROTTLED, "base": QUIET}, Clock.WALL, False),
        ({"arm": THROTTLED, "arm1": QUIET, "base": THROTTLED}, Clock.WALL, False),
        ({"arm": CROWDED, "base": CROWDED}, Clock.WALL, True),
        ({"arm": CROWDED, "base": CROWDED}, Clock.CPU, False),  # of which CPU time says something
        ({"arm": CROWDED_THREADS, "base": CROWDED_THREADS}, Clock.CPU, True),
        ({"arm": THROTTLED, "base": THROTTLED}, Clock.CPU, True),
    ],
)
def test_an_effect_is_held_back_where_every_trial_of_all_its_arms_was_disturbed(
    planned, trials: dict, clock: Clock, held: bool
) -> None:
    found = judged(planned(), clock=clock, **trials)
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


def test_the_clock_is_chosen_from_what_the_trials_met() -> None:
    def chosen(*trials: tuple[str, bool, bool]) -> Clock:
        schema = {"label": pl.String, "crowded": pl.Boolean, "alone": pl.Boolean}
        return clock_of(pl.DataFrame(list(trials), schema=schema, orient="row")).clock

    assert chosen(("a", True, True), ("b", False, True)) is Clock.CPU
    assert chosen(("a", False, True), ("b", False, True)) is Clock.WALL
    assert chosen(("a", True, True), ("b", False, False)) is Clock.WALL
