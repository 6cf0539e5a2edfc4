"""Draws of an iteration: in one order, frozen where asked, and cut into the rows of microbatches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.random_draws import Draws
from perfsweep.workloads.spd.maths.sites import Names, Site, unstack
from perfsweep.workloads.spd.presets import LossSpec

SITES = tuple(Site(name, "linear", 4, 4, 3, None) for name in "abc")
ALONE: tuple[Names, ...] = (("a",), ("b",), ("c",))
STACKED: tuple[Names, ...] = (("a", "c"), ("b",))
WHOLE = torch.Size([6, 2])
SEARCH = LossSpec("pgd", 1.0, scope="datapoint")


def draws(groups: tuple[Names, ...] = ALONE, **own: Any) -> Draws:
    return Draws(SITES, "abc", groups, torch.Generator().manual_seed(0), **own)


def iteration(made: Draws, lead: torch.Size, rows: slice = slice(None)) -> list[dict[str, Tensor]]:
    """All draws of an iteration, by module."""
    made.begin(rows)
    noise = unstack(made.noise(lead))
    sources = made.stochastic(lead, routed=True)
    assert sources.routes is not None
    search = unstack(made.adversarial(lead, SEARCH))
    return [
        noise,
        unstack(sources.components),
        unstack(sources.deltas),
        sources.routes,
        made.routes(lead),
        search,
    ]


def equal(ours: list[dict[str, Tensor]], theirs: list[dict[str, Tensor]]) -> list[bool]:
    return [
        all(torch.equal(one[name], other[name]) for name in "abc")
        for one, other in zip(ours, theirs, strict=True)
    ]


def test_stacking_changes_no_number() -> None:
    assert all(equal(iteration(draws(), WHOLE), iteration(draws(STACKED), WHOLE)))
    other = iteration(draws(STACKED, canonical=False), WHOLE)
    assert not any(equal(iteration(draws(), WHOLE), other)[:3])


def test_every_iteration_draws_anew_and_a_frozen_one_gets_the_first_again() -> None:
    made = draws()
    assert not any(equal(iteration(made, WHOLE), iteration(made, WHOLE)))
    frozen = draws(frozen=True, batch=6)
    first = iteration(frozen, WHOLE)
    assert all(equal(first, iteration(draws(), WHOLE)))
    assert all(equal(iteration(frozen, WHOLE), first))


@pytest.mark.parametrize("groups", [ALONE, STACKED])
def test_frozen_microbatches_get_their_rows_of_the_whole(groups: tuple[Names, ...]) -> None:
    whole = iteration(draws(groups, frozen=True, batch=6), WHOLE)
    frozen = draws(groups, frozen=True, batch=6)
    for rows in (slice(0, 2), slice(2, 6)):
        own = iteration(frozen, torch.Size([rows.stop - rows.start, 2]), rows)
        assert all(equal(own, [{name: one[rows] for name, one in part.items()} for part in whole]))


@pytest.mark.parametrize(("init", "value"), [("ones", 1.0), ("zeros", 0.0)])
def test_a_search_may_begin_at_a_constant(init: str, value: float) -> None:
    found = unstack(draws().adversarial(WHOLE, LossSpec("pgd", 1.0, init=init)))
    assert all(bool((one == value).all()) for one in found.values())


def test_routes_take_one_to_all_modules_with_equal_chances() -> None:
    routes = draws().routes(torch.Size([3000]))
    taken = torch.stack([routes[name] for name in "abc"]).sum(0)
    assert sorted(set(taken.tolist())) == [1, 2, 3]
    assert all(abs((taken == count).float().mean() - 1 / 3) < 0.03 for count in (1, 2, 3))
    assert all(abs(routes[name].float().mean() - 2 / 3) < 0.03 for name in "abc")


@pytest.mark.parametrize(("normal", "mean", "spread"), [(False, 0.5, 12**-0.5), (True, 0.0, 1.0)])
@pytest.mark.parametrize("delta", [False, True])
def test_kept_sources_begin_uniform_or_normal_whether_stacked_or_not(
    normal: bool, mean: float, spread: float, delta: bool
) -> None:
    alone, stacked = (unstack(draws(groups, delta=delta).kept(WHOLE, normal)) for groups in (ALONE, STACKED))
    assert {one.shape for one in alone.values()} == {(*WHOLE, 3 + delta)}
    assert normal or all(torch.equal(one, stacked[name]) for name, one in alone.items())
    many = draws(delta=delta).kept(torch.Size([2000]), normal)["a",]
    assert float(many.mean()) == pytest.approx(mean, abs=0.05)
    assert float(many.std()) == pytest.approx(spread, rel=0.05)
