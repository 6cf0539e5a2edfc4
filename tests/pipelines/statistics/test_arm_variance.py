"""The variance of an arm's mean, on tables small enough to work out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from perfsweep.pipelines.statistics.arm_variance import ArmVariances, Layout, PackTable


def pack(*arms: Sequence[float], servers: Sequence[int] | None = None, name: str = "p000") -> PackTable:
    """A pack of arms a, b, ...: values by round, each round on a server of its own unless told otherwise."""
    values = np.array(arms, float)
    servers = list(range(values.shape[1])) if servers is None else servers
    return PackTable(name, tuple("abcdefgh"[: len(values)]), values, np.array(servers))


def noise(arms: int, rounds: int, scale: Sequence[float] | float = 1.0, seed: int = 0) -> np.ndarray:
    """Values whose arms scatter by `scale`, around one mean a round."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((arms, rounds)) * np.reshape(scale, (-1, 1))
    return values + 10 * rng.standard_normal(rounds)


def test_packs_of_one_sweep_pool_by_their_degrees() -> None:
    quiet, loud = pack([-1, 0, 1], [1, 0, -1]), pack([-2, -2, 0, 2, 2], [2, 2, 0, -2, -2], name="p001")
    both = ArmVariances([quiet, loud])
    alone = [ArmVariances([one]) for one in (quiet, loud)]
    degrees = sum(one.degrees for one in alone)
    assert both.degrees == pytest.approx(degrees) == pytest.approx(6.0)
    assert both.variance == pytest.approx(sum(one.variance * one.degrees for one in alone) / degrees)


def centred(values: np.ndarray) -> np.ndarray:
    """As pseudo-values come: without what a round does to all its arms."""
    return values - np.nanmean(values, axis=0)


def test_the_pooled_variance_is_that_of_one_arms_values() -> None:
    values = centred(noise(40, 200, scale=0.5))
    variances = ArmVariances([pack(*values)])
    assert variances.variance == pytest.approx(0.25, rel=0.05)
    assert variances.degrees == pytest.approx(40 * 199 * (1 - 1 / 40))


def test_three_arms_in_a_round_are_enough_to_tell_whose_scatter_it_is() -> None:
    variances = ArmVariances([pack(*centred(noise(3, 40, [1.0, 1.0, 6.0])))])
    quiet, loud = (variances.of_sum({("p000", name): 1.0})[0] for name in "ac")
    assert loud == pytest.approx(36, rel=0.4) and quiet < 3


def test_an_arm_that_scatters_beyond_the_others_answers_for_itself_and_they_for_one_another() -> None:
    scale = [1.0] * 7 + [6.0]
    values = centred(noise(8, 40, scale))
    variances = ArmVariances([pack(*values)])
    loud, degrees = variances.of_sum({("p000", "h"): 1.0})
    quiet, pooled = variances.of_sum({("p000", "a"): 1.0})
    assert loud == pytest.approx(36, rel=0.4)
    assert degrees == pytest.approx(39)
    assert pooled == pytest.approx(variances.degrees)
    assert quiet == pytest.approx(variances.variance)
    # Of both, Satterthwaite's degrees lie between.
    variance, both = variances.of_sum({("p000", "h"): 1.0, ("p000", "a"): 1.0})
    assert variance == pytest.approx(loud + quiet)
    assert degrees < both < degrees + pooled
    assert both == pytest.approx(variance**2 / (loud**2 / degrees + quiet**2 / pooled))


# Servers of two rounds, whose draws of layout go one way and the other.
SERVERS = [0, 0, 1, 1, 2, 2, 3, 3]
DRAWS = np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
WITHIN = np.array([0.1, -0.1, 0.1, -0.1, 0.1, -0.1, 0.1, -0.1])


def test_what_servers_add_is_told_from_noise_within_them() -> None:
    arm = DRAWS + WITHIN
    layout = ArmVariances([pack(arm, -arm, servers=SERVERS)]).layout()
    assert layout is not None
    # Of each arm: eight values of squares 0.01 over four degrees within, both mirrored (times two); four
    # means of squares 1 over three degrees.
    noise_within, between = 2 * 8 * 0.01 / 4, 2 * 4 * 1.0 / 3
    assert layout.noise == pytest.approx(noise_within)
    assert layout.layout == pytest.approx(between - noise_within / 2)
    assert layout.f == pytest.approx(2 * between / noise_within)
    assert layout.p < 0.01
    assert layout.share == pytest.approx(layout.layout / (layout.layout + layout.noise))


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(pack(DRAWS, -DRAWS), id="a round for each server"),
        pytest.param(pack(DRAWS + WITHIN, -DRAWS - WITHIN, servers=[0] * 8), id="one server"),
        pytest.param(pack(DRAWS, -DRAWS, servers=SERVERS), id="no noise"),
    ],
)
def test_layout_is_not_told_from_noise(table: PackTable) -> None:
    assert ArmVariances([table]).layout() is None


def test_servers_that_add_nothing_have_no_share() -> None:
    # Means of servers are equal: between them lies less than noise alone would bring.
    layout = ArmVariances([pack(WITHIN, -WITHIN, servers=SERVERS)]).layout()
    assert layout is not None
    assert (layout.layout, layout.share, layout.f) == (0.0, 0.0, 0.0)
    assert layout.p == pytest.approx(1.0)


UNEQUAL = [server for server in range(30) for _ in range(1 if server % 2 else 7)]


def test_servers_of_unequal_length_that_add_nothing_are_found_to_add_nothing() -> None:
    """Of four rounds on average, and their means scatter as those of 1.75 rounds."""
    values = centred(noise(6, len(UNEQUAL)))
    layout = ArmVariances([pack(*values, servers=UNEQUAL)]).layout()
    assert layout is not None
    assert layout.f == pytest.approx(1.0, abs=0.25) and layout.p > 0.05
    assert layout.share < 0.1


def test_what_servers_of_unequal_length_add_is_told_from_noise() -> None:
    draws = noise(6, 30, scale=1.5, seed=1)[:, UNEQUAL]
    layout = ArmVariances([pack(*centred(noise(6, len(UNEQUAL)) + draws), servers=UNEQUAL)]).layout()
    assert layout is not None
    assert (layout.noise, layout.layout) == (pytest.approx(1.0, rel=0.15), pytest.approx(2.25, rel=0.25))


@pytest.mark.parametrize("wide", [2, 4], ids=["few wide rounds", "most servers wide"])
def test_servers_of_unequal_length_from_which_arms_have_left_are_judged(wide: int) -> None:
    """Most rounds have two arms, and the servers have four on average: or the other way round."""
    values = noise(5, 10)
    values[2:, wide:] = math.nan
    servers = [0] * (wide - 1) + [1] + [2] * (10 - wide)
    variances = ArmVariances([pack(*centred(values), servers=servers)])
    found = {variances.of_sum({("p000", arm): 1.0}) for arm in "abcde"}
    assert all(0 < variance < 9 and degrees > 1 for variance, degrees in found)
    assert variances.layout() is not None


def test_variances_are_told_where_all_arms_but_two_have_left_within_one_server() -> None:
    values = noise(3, 40)
    values[2, 6:] = math.nan
    servers = [number // 6 for number in range(40)]
    variances = ArmVariances([pack(*centred(values), servers=servers)])
    assert variances.degrees > 4 and 0.05 < variances.variance < 0.6, "a server's mean of six has a sixth"
    assert variances.layout() is not None


def test_layout_in_words_has_its_share_and_the_test() -> None:
    words = "process and layout: 75% of the variance (F 7.0, p 0.0012)"
    assert str(Layout(noise=0.01, layout=0.03, f=7.04, p=0.00123)) == words


def test_pairs_scatter_beyond_a_figure_where_chance_is_no_excuse() -> None:
    variances = ArmVariances([pack(*centred(noise(6, 60, scale=0.1)))])
    pair_sd = 0.1 * math.sqrt(2)
    assert variances.beyond(pair_sd * 0.8)
    assert not variances.beyond(pair_sd), "by chance some lie above"
    assert not variances.beyond(pair_sd * 1.2)


def test_nothing_measured_scatters_beyond_nothing() -> None:
    assert not ArmVariances([pack([1.0], [2.0])]).beyond(0.0)
    assert ArmVariances([pack([1.0], [2.0])]).layout() is None
