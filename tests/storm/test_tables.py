"""The tables of faults and cases: all of the lists are played, and a storm is drawn from its seed."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest
from storm.cases import CASES
from storm.faults import FAULTS, LIES, stand_in
from storm.stage import told_to
from storm.storm import planned, variant

from perfsweep.slurm.errors import ClusterError

EVERY = [FAULTS[name] for name in sorted(FAULTS)]


def first(seed: int, count: int = 400) -> list[tuple[str, float, float]]:
    return [(one.fault.name, one.after_s, one.lasts_s) for one in islice(planned(seed, EVERY), count)]


def test_every_number_of_the_lists_is_played() -> None:
    wanted = [f"F{n}" for n in range(1, 27)] + [f"D{n}" for n in range(1, 15)] + ["N1", "N2"]
    numbers = [match[0] for id in CASES if (match := re.match(r"[FDN]\d+", id))]
    assert list(dict.fromkeys(numbers)) == wanted, "in their order"
    begun = {name for case in CASES.values() for name in (*case.under, case.deed) if isinstance(name, str)}
    assert begun <= FAULTS.keys()


@pytest.mark.parametrize("error", [AssertionError("two\n lines"), ClusterError("no answer"), KeyError("x")])
def test_what_breaks_a_case_off_is_a_problem_of_that_case_alone(error: Exception) -> None:
    problems: list[str] = []
    with told_to(problems):
        raise error
    (problem,) = problems
    assert type(error).__name__ in problem and "\n" not in problem


def test_the_same_seed_brings_the_same_storm_and_another_one_another() -> None:
    assert first(7) == first(7)
    assert first(7) != first(8)
    assert [variant(7, n) for n in range(20)] == [variant(7, n) for n in range(20)]


def test_packs_share_jobs_in_storms_on_slurm_alone() -> None:
    names = {slurm: {variant(7, n, slurm) for n in range(40)} for slurm in (True, False)}
    assert names[True] - names[False] == {"shared"}


def test_what_a_fault_draws_moves_no_other() -> None:
    one, again = (list(islice(planned(7, EVERY), 10)) for _ in range(2))
    one[3].rng().random()
    assert [x.rng().random() for x in one] == [x.rng().random() for x in again]


def test_every_fault_falls_in_some_storm_and_a_storm_of_20_minutes_has_room_for_400() -> None:
    falls = first(7)
    assert {name for name, _, _ in falls} == set(FAULTS)
    assert sum(after for _, after, _ in falls) < 20 * 60
    for name, _, lasts in falls:
        shortest, longest = FAULTS[name].seconds
        assert shortest <= lasts <= longest


@pytest.mark.parametrize("name", sorted(LIES))
def test_a_stand_in_takes_a_clients_place_and_goes_again(name: str, tmp_path: Path) -> None:
    with stand_in(tmp_path, name.partition("_")[0], LIES[name][1]) as client:
        assert (tmp_path / client).stat().st_mode & 0o111
    assert not (tmp_path / client).exists()
