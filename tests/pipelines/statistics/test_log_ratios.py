"""What counts as a replication, whose variance an effect has, and what turns within rounds are worth."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from machines import effects_of, rounds_of
from scipy.special import stdtrit

from perfsweep.pipelines.statistics.estimates import Apart, Estimate, Method
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.store.records import Effect
from perfsweep.workloads.errors import RecordError


def log_times(arms: int, rounds: int, sd: float = 0.01, seed: int = 33) -> np.ndarray:
    """[arms, rounds] of equal arms in rounds that differ by more; no arm happens to look noisy."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, sd, (arms, rounds)) + rng.normal(0, 0.1, rounds)


def more(sd: float, *shape: int) -> np.ndarray:
    """Noise besides."""
    return np.random.default_rng(34).normal(0, sd, shape)


def estimates(values: np.ndarray, servers: int = 0) -> list[Estimate]:
    """Every arm against the first."""
    rounds = rounds_of(np.exp(values), servers)
    return [rounds.estimate(effect) for effect in effects_of(len(values))]


def half_width(estimate: Estimate) -> float:
    assert estimate.interval is not None
    return estimate.interval.half_width


def test_two_arms_have_students_interval_of_their_differences() -> None:
    values = log_times(2, 3)
    (estimate,) = estimates(values)
    d = values[1] - values[0]
    assert (estimate.method, estimate.n, estimate.rounds, estimate.degrees) == (Method.POOLED, 3, 3, 2)
    assert estimate.log_ratio == pytest.approx(d.mean())
    assert half_width(estimate) == pytest.approx(stdtrit(2, 0.975) * d.std(ddof=1) / math.sqrt(3))


def test_many_arms_share_their_variance_and_its_degrees_of_freedom() -> None:
    found = estimates(log_times(7, 10))
    assert {round(one.degrees, 6) for one in found} == {6 * 9}
    assert len({round(half_width(one), 12) for one in found}) == 1


def test_servers_are_counted_and_not_their_rounds() -> None:
    values = log_times(4, 10)
    values += np.repeat(more(0.05, 4, 5), 2, axis=1)  # what a server gives to an arm
    by_server, by_round = estimates(values, servers=5), estimates(values)
    assert [one.n for one in by_server] == [5] * 3 and [one.rounds for one in by_server] == [10] * 3
    assert [one.n for one in by_round] == [10] * 3
    assert by_server[0].log_ratio == pytest.approx(by_round[0].log_ratio, abs=1e-9)
    assert half_width(by_server[0]) > 1.3 * half_width(by_round[0])


def test_the_rounds_of_a_single_server_are_all_there_is_to_count() -> None:
    values = log_times(3, 6)
    assert estimates(values, servers=1) == estimates(values)


def test_an_arm_noisier_than_the_others_answers_for_itself() -> None:
    values = log_times(7, 10)
    values[3] += more(0.05, 10)
    widths = [half_width(one) for one in estimates(values, servers=5)]
    assert widths[2] > 2 * max(widths[:2] + widths[3:])


def test_a_noisy_base_widens_all_effects() -> None:
    values = log_times(7, 10)
    values[0] += more(0.05, 10)
    assert min(half_width(one) for one in estimates(values, servers=5)) > 0.025


def test_a_contrast_of_many_arms_is_known_better_than_a_pair() -> None:
    rounds = rounds_of(np.exp(log_times(8, 10)))
    pair, contrast = (
        rounds.estimate(SimpleNamespace(weights=weights))
        for weights in ({"1": 1.0, "0": -1.0}, {str(i): (-1) ** i / 4 for i in range(8)})
    )
    assert half_width(contrast) == pytest.approx(half_width(pair) / 2)


def test_an_arm_that_failed_in_some_rounds_is_judged_by_those_it_has() -> None:
    values = log_times(5, 12)
    values[2, :6] = np.nan
    found = estimates(values)
    assert [(one.n, one.rounds) for one in found] == [(12, 12), (6, 6), (12, 12), (12, 12)]
    assert half_width(found[1]) == pytest.approx(math.sqrt(2) * half_width(found[0]), rel=0.01)


def test_packs_pool_their_variance_and_an_effect_in_two_of_them_has_both() -> None:
    values = log_times(3, 8)
    packs = Rounds(
        [
            Cell(f"p{number // 4}", number % 4, None, str(arm), math.exp(value))
            for arm, row in enumerate(values)
            for number, value in enumerate(row)
            if not (arm == 2 and number >= 4)
        ],
        "time",
    )
    both, one = (packs.estimate(effect) for effect in effects_of(3))
    assert (both.n, one.n) == (8, 4)
    assert both.degrees == pytest.approx(2 * 3 + 3) == one.degrees
    assert half_width(one) == pytest.approx(math.sqrt(2) * half_width(both))
    assert packs.replications == 4


def test_a_noisy_pack_of_two_arms_is_not_pooled_with_the_quiet_ones() -> None:
    def pack(name: str, sd: float) -> list[Cell]:
        values = log_times(2, 10, sd, seed=int(name))
        arms = ("0", name)
        return [Cell(name, n, None, arms[a], math.exp(values[a, n])) for a in (0, 1) for n in range(10)]

    rounds = Rounds([cell for name in "123" for cell in pack(name, 0.05 if name == "2" else 0.005)], "time")
    quiet, noisy, other = (rounds.estimate(effect) for effect in effects_of(4))
    assert max(half_width(quiet), half_width(other)) < 0.01
    assert half_width(noisy) > 0.02 and noisy.degrees == pytest.approx(9)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros((2, 1)), "one round has no interval"),
        (np.array([[0.0, np.nan], [np.nan, 0.0]]), "no round measured both the arm and its base"),
    ],
)
def test_too_little_says_in_words_why_there_is_no_interval(values: np.ndarray, reason: str) -> None:
    (estimate,) = estimates(values)
    assert reason in estimate.reason
    assert estimate.interval is None and estimate.p is None and estimate.at(0.95) is None


def test_an_arm_that_left_is_judged_by_what_there_was_when_it_left() -> None:
    """Servers differ from the seventh round on and are counted then: of the arm that left there are two."""
    values, layouts = log_times(3, 30), np.repeat(more(0.1, 3, 8), 3, axis=1)
    values[2] += 0.4
    values[:, 6:] += layouts[:, :24]
    cells = [
        Cell("p0", number, number // 3, str(arm), math.exp(values[arm, number]))
        for number in range(30)
        for arm in range(3 if number < 6 else 2)
    ]
    whole, then = Rounds(cells, "time", Apart(0.01, 2)), Rounds(cells[:18], "time", Apart(0.01, 2))
    stayed, left = effects_of(3)
    assert whole.layout is not None and whole.layout.p < 0.001 and whole.estimate(stayed).n == 10
    assert whole.estimate(left) == then.estimate(left)
    assert (whole.estimate(left).method, whole.estimate(left).n) == (Method.SEQUENCE, 6)


def test_two_packs_of_one_round_each_know_no_scatter() -> None:
    cells = [Cell(pack, 0, None, arm, value) for pack in "pq" for arm, value in (("0", 1.0), ("1", 2.0))]
    estimate = Rounds(cells, "time").estimate(effects_of(2)[0])
    assert estimate.interval is None and estimate.reason and estimate.log_ratio == pytest.approx(math.log(2))


def test_equal_figures_have_an_interval_of_no_width() -> None:
    (estimate,) = estimates(np.log(np.full((2, 4), 7e9)))
    assert estimate.interval is not None
    assert (estimate.log_ratio, half_width(estimate), estimate.p) == (0.0, 0.0, 1.0)


def test_a_figure_that_is_not_positive_names_its_trial() -> None:
    with pytest.raises(RecordError, match=r"arm b in round 3 of pack p0 is 0\.0; delete that trial's folder"):
        Rounds([Cell("p0", 3, None, "b", 0.0)], "ns_per_unit")


def test_without_a_round_of_two_arms_nothing_is_replicated() -> None:
    for table in (Rounds((), "time"), rounds_of(np.ones((1, 3)))):
        assert (table.rounds, table.replications, table.layout) == (0, 0, None)


ROUNDS, ITERATIONS, TURNS = 6, 300, 100
MARGIN = math.log1p(0.05)
EFFECT = Effect(id="e", design="one_at_a_time", toggle="commit", level="head", pairs=(("head", "base"),))


def crowded_times(rng: np.random.Generator, count: int) -> np.ndarray:
    """[count] times of iterations one after the other, relative to those on a core of their own."""
    comes_or_goes = rng.random(count) < 1 / 40
    there = (np.cumsum(comes_or_goes) + rng.integers(2)) % 2
    return np.where(there, 1.5, 1.0) * np.exp(0.1 * rng.standard_normal(count))


def half_width_and_log_ratio(rng: np.random.Generator, turns: int, change: float) -> tuple[float, float]:
    """The 95 % interval of six rounds, each with a server of its own, of a head with a planted log ratio."""
    cells = [cell for number in range(ROUNDS) for cell in a_round(rng, number, turns, change)]
    estimate = Rounds(cells, "ns_per_unit").estimate(EFFECT)
    assert estimate.interval is not None
    return estimate.interval.half_width, estimate.log_ratio


def a_round(rng: np.random.Generator, number: int, turns: int, change: float) -> Iterator[Cell]:
    """Mean times of the two versions, which take turns on one core, in random order in each cycle."""
    length = ITERATIONS // turns
    cycles = [rng.permutation(["base", "head"]) for _ in range(turns)]
    owners = np.concatenate([np.repeat(cycle, length) for cycle in cycles])
    times = crowded_times(rng, len(owners))
    for arm, factor in (("base", 1.0), ("head", math.exp(change))):
        yield Cell("p000", number, number, arm, float(times[owners == arm].mean()) * factor)


@pytest.mark.parametrize("change", [0.0, -math.log(1.05)], ids=["without effect", "5 % faster"])
def test_turns_decide_in_six_rounds_what_one_region_after_the_other_leaves_open(change: float) -> None:
    rng = np.random.default_rng(26)
    in_turns = [half_width_and_log_ratio(rng, TURNS, change) for _ in range(30)]
    whole = [half_width_and_log_ratio(rng, 1, change) for _ in range(30)]
    assert np.mean([half <= MARGIN / 2 for half, _ in in_turns]) >= 0.95
    assert np.mean([half <= MARGIN / 2 for half, _ in whole]) <= 0.05
    missed = np.mean([abs(ratio - change) > half for half, ratio in in_turns])
    assert missed <= 0.12, "intervals are narrower, and cover as often"


def test_effects_compare_figures_of_one_kind() -> None:
    """Others had half of the core: an arm from whose time that cannot be subtracted is not twice as slow."""
    rng = np.random.default_rng(1)
    cells = []
    for number in range(8):
        busy = 2 * math.exp(0.01 * rng.standard_normal())
        for arm in ("base", "head", "workers"):
            own = math.exp(0.01 * rng.standard_normal())
            plain = own * busy
            cells.append(
                Cell(
                    "p000",
                    number,
                    number,
                    arm,
                    plain if arm == "workers" else own,
                    None if arm == "workers" else plain,
                )
            )
    table = Rounds(cells, "ns_per_unit")
    workers = Effect(id="w", design="", toggle="", level="", pairs=(("workers", "base"),))
    assert abs(table.estimate(workers).log_ratio) < 0.02
    assert abs(table.estimate(EFFECT).log_ratio) < 0.02
    assert {round(pair.log_ratio, 1) for pair in table.pairs(workers)} == {0.0}


@pytest.mark.parametrize(("server_sd", "counted"), [(0.0, 12), (0.1, 4)])
def test_rounds_are_counted_where_servers_do_not_differ_and_servers_where_they_do(
    server_sd: float, counted: int
) -> None:
    rng = np.random.default_rng(5)
    arms = [f"arm{i}" for i in range(6)]
    cells = []
    for server in range(4):
        own = {arm: server_sd * rng.standard_normal() for arm in arms}
        cells += [
            Cell("p000", 3 * server + i, server, arm, math.exp(own[arm] + 0.01 * rng.standard_normal()))
            for i in range(3)
            for arm in arms
        ]
    effect = Effect(id="e", design="", toggle="", level="", pairs=(("arm1", "arm0"),))
    table = Rounds(cells, "ns_per_unit")
    assert table.estimate(effect).n == counted
    assert table.layout is not None
