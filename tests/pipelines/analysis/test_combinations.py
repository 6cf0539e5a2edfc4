"""Toggles in combination: corners of interactions, and what a level does alone and with the others."""

from __future__ import annotations

import pytest
from measured import compared, simulated

from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.combinations import alone_and_beside, parts_of
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.report.tables import answer_tables
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.records import Effect

ROUNDS = {"rounds": 10}
PAIR = {"work": ["double", "single"], "sign": ["right", "wrong"]}


def slower_together(levels) -> float:
    """Halves for single work, a tenth more for a wrong sign, a quarter for both, a third for a slab of 4."""
    seconds = (0.5 if levels["work"] == "single" else 1.0) * (1.1 if levels["sign"] == "wrong" else 1.0)
    both = levels["work"] == "single" and levels["sign"] == "wrong"
    return seconds * (1.25 if both else 1.0) * (4 / 3 if levels["slab"] == 4 else 1.0)


def test_corners_are_what_each_toggle_and_both_cost_against_neither(command) -> None:
    (found,) = compared(
        *simulated(command(DesignConfig("factorial", levels=PAIR), measure=ROUNDS), slower_together)
    ).corners
    assert found.toggles == ("work", "sign")
    assert (found.low, found.high) == (("double", "right"), ("single", "wrong"))
    assert found.first == pytest.approx(0.5, rel=0.01)
    assert found.second == pytest.approx(1.1, rel=0.01)
    assert found.both == pytest.approx(0.5 * 1.1 * 1.25, rel=0.01)
    assert found.expected == pytest.approx(0.55, rel=0.02)


SIX = {"work": ["single"], "sign": ["wrong"], "slab": [4], "half": ["on"], "idle": ["on"], "variable": ["on"]}


def test_interactions_that_a_design_cannot_tell_apart_are_not_drawn(command) -> None:
    few = {name: SIX[name] for name in list(SIX)[:5]}
    apart = compared(*simulated(command(DesignConfig("fractional", levels=few)), slower_together))
    assert len(apart.corners) == 10, "16 arms of resolution 5 tell all pairs of five toggles apart"
    drawn = {one.toggles: one for one in apart.corners}
    assert drawn["work", "slab"].both == pytest.approx(drawn["work", "slab"].expected, rel=0.02)
    mixed = compared(
        *simulated(command(DesignConfig("fractional", levels=SIX), name="mixed"), slower_together)
    )
    assert any(" = " in result.effect.toggle for result in mixed.effects)
    assert len(mixed.corners) < 15


def result(design: str, verdict: Verdict | None, outcome: str = "") -> EffectResult:
    effect = Effect(id=design, design=design, toggle="amp", level="bf16", pairs=(("a", "b"),))
    return EffectResult(effect, "a", "b", verdict, outcome=outcome)


@pytest.mark.parametrize(
    ("alone", "beside", "reading"),
    [
        (Verdict.FASTER, Verdict.FASTER, "helps either way"),
        (Verdict.NO_DIFFERENCE, Verdict.FASTER, "helps only with the others"),
        (Verdict.UNDECIDED, Verdict.FASTER, "helps with the others; alone it is not known"),
        (Verdict.FASTER, Verdict.SLOWER, "helps only alone: the others already do its work"),
        (Verdict.NO_DIFFERENCE, Verdict.SLOWER, "helps in neither"),
        (Verdict.FASTER, Verdict.UNDECIDED, ""),
        (Verdict.DIFFERENT, Verdict.FASTER, ""),
    ],
)
def test_two_verdicts_are_read_together_and_open_ones_are_not(alone, beside, reading) -> None:
    (row,) = alone_and_beside([result("one_at_a_time", alone), result("leave_one_out", beside)])
    assert row.reading == reading


STEP = {"processor": ("naive", "wide")}


def listed(name: str, reference: str, ratio: float | None, **fields: object) -> EffectResult:
    own = Effect(
        id=f"{name} {reference}",
        design="arms",
        toggle=name,
        level=f"vs {reference}",
        pairs=(("a", "b"),),
        reference=reference,
    )
    verdict = fields.pop("verdict", Verdict.FASTER if ratio else None)
    return EffectResult(own, name, reference, verdict, ratio, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "against_wide",
    [{"ratio": None, "outcome": "base unsupported"}, {"ratio": 0.5, "verdict": Verdict.DIFFERENT}],
)
def test_a_gain_that_has_no_time_against_both_baselines_is_not_told_apart(against_wide: dict) -> None:
    (part,) = parts_of(STEP, [listed("fast", "naive", 0.25), listed("fast", "wide", **against_wide)])
    assert part.gains == () and part.step is None


def test_a_sweep_measures_the_step_that_it_names(command) -> None:
    sweep = command(
        DesignConfig("arms", arms={"fast": {"work": "single", "slab": 4}}),
        measure=ROUNDS,
        references={"naive": {}, "wide": {"work": "single"}},
    )
    sweep.sweep.parts = {"work": ["naive", "wide"]}
    found = compared(*simulated(sweep, slower_together))
    (part,) = found.parts
    (gain,) = part.gains
    assert part.step is not None and part.step.ratio == pytest.approx(0.5, rel=0.01)
    assert gain.whole.ratio == pytest.approx(0.5 * 4 / 3, rel=0.01)
    assert gain.method.ratio == pytest.approx(4 / 3, rel=0.01)
    titles = [one.title for one in answer_tables(found, Where.TERMINAL)]
    assert titles[:3] == [
        "Effects: arms against naive",
        "Effects: arms against wide",
        "Parts of each gain: method and work",
    ]
