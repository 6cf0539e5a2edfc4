"""Effects that get no verdict on their times: which one they get instead, and the code of its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.arm_records import Beat
from perfsweep.pipelines.analysis.exclusions import HoldingBack
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.workloads.api import Device


@pytest.fixture
def measured(command) -> Iterator[tuple[SweepFolder, Manifest]]:
    """A sweep in which `work=single` takes half the time, with the same results."""
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    yield simulated(command(design, measure={"rounds": 10}), cost)


def effect_of(measured: tuple[SweepFolder, Manifest]):
    (effect,) = compared(*measured).effects
    return effect


def arm_of(measured: tuple[SweepFolder, Manifest]) -> str:
    return measured[1].effects[0].pairs[0][0]


@pytest.mark.parametrize(
    ("shape", "verdict", "code"),
    [
        ("job", Verdict.FEWER_UNITS, ReasonCode.FEWER_UNITS),
        ("steps", Verdict.FASTER, ReasonCode.CALLED_FASTER),
    ],
)
def test_a_job_that_does_less_is_not_faster_and_steps_may_count_otherwise(
    measured, shape: str, verdict: Verdict, code: ReasonCode
) -> None:
    folder, manifest = measured
    declared = manifest.sweep.declared.model_copy(update={"shape": shape})
    sweep = manifest.sweep.model_copy(update={"declared": declared})
    shaped = manifest.model_copy(update={"sweep": sweep})
    for record in folder.path.glob(f"trials/{arm_of(measured)}/*-r*/record.json"):
        change(record, units=99.0)
    effect = effect_of((folder, shaped))
    assert (effect.verdict, effect.code) == (verdict, code)


def test_the_memory_of_a_contrast_weighs_its_arms_and_an_interaction_has_none(command) -> None:
    design = DesignConfig("factorial", levels={"work": ["double", "single"], "sign": ["right", "wrong"]})
    folder, manifest = simulated(command(design), cost)
    weights = {}
    for arm in manifest.arms:
        single, wrong = arm.levels["work"] == "single", arm.levels["sign"] == "wrong"
        weights[arm.id] = 0.5 if single else -0.5
        for record in folder.path.glob(f"trials/{arm.id}/*-r*/record.json"):
            change(record, peak_bytes=10_000 + 4000 * single + 100 * wrong)
    work, _, both = manifest.effects
    contrasts = (work.model_copy(update={"contrast": weights}), both)
    planned = manifest.model_copy(update={"effects": contrasts})
    assert [one.memory_bytes for one in compared(folder, planned).effects] == [4000, None]
    for record in folder.path.glob(f"trials/{manifest.arms[0].id}/*-r*/record.json"):
        change(record, outcome="oom", failure={"type": "X", "message": ""})
    assert [one.memory_bytes for one in compared(folder, planned).effects] == [None, None]


def test_memory_is_compared_within_the_rounds_that_both_were_measured_in(measured) -> None:
    folder, manifest = measured
    arm, base = manifest.effects[0].pairs[0]
    for name, peak in ((arm, 5000), (base, 4000)):
        for record in folder.path.glob(f"trials/{name}/*-r*/record.json"):
            change(record, peak_bytes=peak)
    for number in range(4, 10):  # the arm left after four rounds, and the base goes on with more memory
        (own,) = folder.path.glob(f"trials/{arm}/p000-r{number:03d}-a0/record.json")
        change(own, outcome="oom", failure={"type": "X", "message": ""})
        (other,) = folder.path.glob(f"trials/{base}/p000-r{number:03d}-a0/record.json")
        change(other, peak_bytes=9000)
    assert effect_of(measured).memory_bytes == 1000


@pytest.mark.parametrize(
    ("unsettled", "alarm", "note"),
    [
        (5, None, ""),
        (6, None, "iterations did not settle in 6 of 10 rounds (warm-up)"),
        (6, "the clock rises", "iterations did not settle in 6 of 10 rounds (the clock rises)"),
    ],
)
def test_iterations_that_did_not_settle_are_told_where_most_trials_had_them(
    measured, unsettled: int, alarm: str | None, note: str
) -> None:
    records = sorted(measured[0].path.glob(f"trials/{arm_of(measured)}/*-r*/record.json"))
    for record in records[:unsettled]:
        change(record, settled=False, alarm=alarm)
    assert effect_of(measured).note == note


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
        (beats(True, 1, 0), True),
        (beats(True, 3, 3), False),
        (beats(True, 300, 299), False),  # a difference below the margin
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
