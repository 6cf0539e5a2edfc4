"""Changes of level in short series: found where they were planted, and rarely where there are none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perfsweep.pipelines.statistics.change_points import ALPHA, LEAST_VERSIONS, find_change_points

Noise = Callable[[np.random.Generator, int], np.ndarray]

NOISES: tuple[Noise, ...] = (
    lambda rng, n: rng.standard_normal(n),
    lambda rng, n: rng.standard_t(2, n),
    lambda rng, n: rng.exponential(size=n) ** 2,
)


def planted(n: int, *steps: tuple[int, float], seed: int = 2) -> np.ndarray:
    """Standard normal values, with steps at some places."""
    series = np.random.default_rng(seed).standard_normal(n)
    for place, height in steps:
        series[place:] += height
    return series


def places(series: np.ndarray) -> list[int]:
    return [point.index for point in find_change_points(series).points]


@pytest.mark.parametrize(("n", "place", "height"), [(12, 10, 8.0), (20, 2, -8.0)])
def test_a_change_of_level_is_found_at_its_first_value(n: int, place: int, height: float) -> None:
    (point,) = find_change_points(planted(n, (place, height))).points
    assert point.index == place
    assert point.shift == pytest.approx(height, abs=3.0)


def test_a_level_that_comes_and_goes_is_two_changes() -> None:
    up, down = find_change_points(planted(24, (8, 8.0), (16, -8.0))).points
    assert (up.index, down.index) == (8, 16)
    assert up.shift > 0 > down.shift


@pytest.mark.parametrize("place", [0, 6])
def test_a_value_that_lies_apart_by_itself_is_no_level(place: int) -> None:
    series = planted(12)
    series[place] += 50.0
    assert places(series) == []


def test_nothing_is_found_in_noise_or_where_all_values_are_equal() -> None:
    assert places(planted(20)) == []
    assert find_change_points([3.5] * 12).p == 1.0


def test_the_answer_depends_neither_on_the_unit_nor_on_the_level() -> None:
    series = planted(15, (6, 3.0), seed=4)
    here, there = find_change_points(series), find_change_points(1e-3 * series + 20.0)
    assert [one.index for one in here.points] == [one.index for one in there.points] == [6]
    assert here.p == there.p


@pytest.mark.parametrize("values", [[1.0] * (LEAST_VERSIONS - 1), [1.0, np.nan] * 10, [1.0, np.inf] * 10])
def test_too_few_values_and_those_that_are_no_numbers_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=f"at least {LEAST_VERSIONS} finite values"):
        find_change_points(values)


@pytest.mark.slow
def test_a_series_without_a_change_rarely_shows_one_whatever_its_noise() -> None:
    """Of 90 series 4.5 are expected at most; 11 are three standard errors more."""
    rng = np.random.default_rng(3)
    series = [noise(rng, 10) for noise in NOISES for _ in range(30)]
    assert 1 <= sum(find_change_points(one).p <= ALPHA for one in series) <= 11


@pytest.mark.slow
def test_next_to_a_change_that_is_there_few_others_are_shown() -> None:
    """Of 40 series two are expected to show another one; 6 are three standard errors more."""
    rng = np.random.default_rng(4)
    steps = (rng.standard_normal(14) + 8.0 * (np.arange(14) >= 7) for _ in range(40))
    assert sum(len(find_change_points(one).points) > 1 for one in steps) <= 6


def test_beside_a_change_that_hides_it_a_smaller_one_is_found_too() -> None:
    assert places(planted(24, (8, 40.0), (16, 6.0))) == [8, 16]
