"""Two-level designs: what each contrast of log times estimates, and what a design cannot tell apart."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import GENERATORS, factorial, fractional, main_effects_and_interactions
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.workloads.api import Device, Level, Toggle
from perfsweep.workloads.errors import ConfigError

NAMES = ["A", "B", "C", "D", "E", "F", "G", "H"]


def space_of(count: int, **levels: Level) -> Space:
    return Space(
        tuple(Toggle(name, (Level("off"), levels.get(name, Level("on"))), "") for name in NAMES[:count])
    )


def axes_of(count: int) -> dict[str, list[str]]:
    return {name: ["on"] for name in NAMES[:count]}


def log_time(arm: dict, effects: dict[str, float]) -> float:
    """Log time of an arm where each named toggle, or pair of toggles that are both on, adds its effect."""
    return sum(value for name, value in effects.items() if all(arm[one] == "on" for one in name.split(" x ")))


def estimates(design, effects: dict[str, float]) -> dict[str, float]:
    """What each contrast of a design makes of noiseless times."""
    found = {}
    for effect in design.effects:
        if effect.contrast:
            found[effect.toggle] = sum(weight * log_time(arm, effects) for arm, weight in effect.contrast)
        else:
            found[effect.toggle] = np.mean(
                [log_time(a, effects) - log_time(b, effects) for a, b in effect.pairs]
            )
    return found


@given(st.lists(st.floats(-0.7, 0.7), min_size=3, max_size=3), st.floats(-0.3, 0.3))
def test_a_factorial_estimates_planted_effects_exactly(mains: list[float], together: float) -> None:
    space = space_of(3)
    planted = {**dict(zip("ABC", mains, strict=True)), "A x C": together}
    found = estimates(factorial(space, space.complete({}), axes_of(3)), planted)
    assert found["A x C"] == pytest.approx(together, abs=1e-9)
    assert found["A x B"] == pytest.approx(0, abs=1e-9)
    # A main effect is the mean over the other toggles' levels: C is on in half of the arms.
    assert found["A"] == pytest.approx(mains[0] + together / 2, abs=1e-9)
    assert found["B"] == pytest.approx(mains[1], abs=1e-9)


@pytest.mark.parametrize(
    ("toggles", "resolution"), [(k, r) for k, known in GENERATORS.items() for r in known]
)
def test_every_design_has_its_resolution(toggles: int, resolution: int) -> None:
    space = space_of(toggles)
    design = fractional(space, space.complete({}), axes_of(toggles), resolution)
    interactions = [effect.toggle for effect in design.effects if " x " in effect.toggle]
    assert any(" = " in name for name in interactions) is (resolution == 4)
    found = estimates(design, {name: 0.1 * i for i, name in enumerate(NAMES[:toggles])})
    assert [found[name] for name in NAMES[:toggles]] == pytest.approx(
        [0.1 * i for i in range(toggles)], abs=1e-9
    )


def test_a_negative_alias_carries_its_sign() -> None:
    signs = np.array(list(itertools.product((-1, 1), repeat=3)))
    signs = np.column_stack([signs, -signs[:, 0] * signs[:, 1] * signs[:, 2]])
    names = [term.name for term in main_effects_and_interactions(signs, list("ABCD"))]
    assert "A x B = -(C x D)" in names


def test_main_effects_that_hide_behind_interactions_are_refused() -> None:
    signs = np.array([[-1, -1, 1], [-1, 1, -1], [1, -1, -1], [1, 1, 1]])
    with pytest.raises(ConfigError, match="A and B x C are confounded"):
        main_effects_and_interactions(signs, list("ABC"))


def test_illegal_combinations_are_left_out_and_the_rest_still_estimates() -> None:
    space = space_of(3, C=Level("on", conflicts={"A": ("on",), "B": ("on",)}))
    design = factorial(space, space.complete({}), axes_of(3))
    assert {refusal.level for refusal in design.refused} >= {"on,on,on"}
    assert any(refusal.toggle == "interactions" for refusal in design.refused), (
        "five arms cannot show six effects"
    )
    found = estimates(design, {"A": 0.3, "B": -0.1, "C": 0.2})
    assert found == {"A": pytest.approx(0.3), "B": pytest.approx(-0.1), "C": pytest.approx(0.2)}


def test_a_fraction_with_too_few_legal_arms_is_refused_with_an_example() -> None:
    space = space_of(6, F=Level("on", conflicts={"A": ("on",)}))
    with pytest.raises(ConfigError, match="F=on conflicts with A=on") as error:
        fractional(space, space.complete({}), axes_of(6))
    assert "of 16 combinations are illegal" in str(error.value)


@pytest.mark.parametrize("count", [2, 4])
def test_small_designs_point_to_the_factorial(count: int) -> None:
    space = space_of(count)
    with pytest.raises(ConfigError, match="five to eight toggles"):
        fractional(space, space.complete({}), axes_of(count))


def test_an_unknown_resolution_lists_the_known_ones() -> None:
    space = space_of(6)
    with pytest.raises(ConfigError, match="choose from: 4, 6"):
        fractional(space, space.complete({}), axes_of(6), 3)


def simulated(effects: dict[str, float], sweeps: int, rounds: int) -> tuple[list, list[Rounds]]:
    """Sweeps of a fractional design on a machine that drifts between rounds and scatters by 2 % in them."""
    space = space_of(6)
    design = fractional(space, space.complete({}), axes_of(6))
    arms = {tuple(arm.values()): arm for effect in design.effects for arm, _ in effect.contrast}
    planned = [
        plan.identified(effect, lambda levels: _Named("/".join(levels.values()))) for effect in design.effects
    ]
    rng, tables = np.random.default_rng(0), []
    for _ in range(sweeps):
        speed = rng.normal(0, 0.1, rounds)
        cells = [
            Cell(
                "p", n, None, "/".join(key), math.exp(log_time(arm, effects) + speed[n] + rng.normal(0, 0.02))
            )
            for key, arm in arms.items()
            for n in range(rounds)
        ]
        tables.append(Rounds(cells, "time"))
    return planned, tables


class _Named:
    def __init__(self, name: str) -> None:
        self.id = name


def test_the_error_of_a_contrast_comes_from_within_rounds_and_its_interval_covers() -> None:
    planted = {"A": -0.4, "B": -0.03, "B x D": 0.05}
    planned, tables = simulated(planted, sweeps=200, rounds=4)
    for name, truth in (("B", -0.03 + 0.05 / 2), ("C", 0.0), ("B x D = C x F", 0.05)):
        effect = next(one for one in planned if one.toggle == name)
        found = [table.estimate(effect) for table in tables]
        hits = [one.interval.low <= truth <= one.interval.high for one in found if one.interval]
        # .95 and three standard errors of 200 sweeps.
        assert len(hits) == 200 and np.mean(hits) > 0.90, name
        # Sixteen arms share the work: each effect is known as well as from eight pairs a round.
        error = np.std([one.log_ratio for one in found])
        half = np.median([one.interval.half_width for one in found if one.interval])
        assert 1.5 < half / error < 2.6, name


def test_a_sweep_plans_a_fraction_in_one_pack_with_its_contrasts(command) -> None:
    axes = {"work": ["single"], "sign": ["wrong"], "half": ["on"], "idle": ["on"], "slab": [1, 2]}
    manifest = plan.make_plan(command(DesignConfig("fractional", levels=axes)), Device())
    assert len(manifest.packs) == 1 and len(manifest.arms) == 17  # the reference is none of the sixteen
    assert all(
        abs(sum(effect.weights.values())) < 1e-9 and len(effect.weights) == 16 for effect in manifest.effects
    )
    assert len({effect.id for effect in manifest.effects}) == 15
