"""A storm is drawn from its seed: the same one falls again, and what one fault draws moves no other."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from storm import file_faults, process_faults, slurm_faults, tracking_faults
from storm.fault import FAULTS
from storm.generator import planned, variant

_REGISTERED = (file_faults, process_faults, slurm_faults, tracking_faults)


def first(seed: int, count: int = 400) -> list[tuple[str, float, float]]:
    faults = [FAULTS[name] for name in sorted(FAULTS)]
    return [(one.fault.name, one.after_s, one.lasts_s) for one in islice(planned(seed, faults), count)]


def test_the_same_seed_brings_the_same_storm_and_another_one_another() -> None:
    assert first(7) == first(7)
    assert first(7) != first(8)
    assert [variant(7, n) for n in range(20)] == [variant(7, n) for n in range(20)]


def test_packs_share_jobs_in_storms_on_slurm_alone() -> None:
    names = {slurm: {variant(7, n, slurm).name for n in range(40)} for slurm in (True, False)}
    assert names[True] - names[False] == {"shared"}


def test_what_a_fault_draws_moves_no_other() -> None:
    faults = [FAULTS[name] for name in sorted(FAULTS)]
    one, again = (list(islice(planned(7, faults), 10)) for _ in range(2))
    drawn = one[3].rng()
    drawn.random()
    assert [x.rng().random() for x in one] == [x.rng().random() for x in again]


def test_every_fault_falls_in_some_storm_and_a_storm_of_20_minutes_has_room_for_400() -> None:
    falls = first(7)
    assert {name for name, _, _ in falls} == set(FAULTS)
    assert sum(after for _, after, _ in falls) < 20 * 60


def test_a_fault_lasts_as_long_as_it_may() -> None:
    for name, _, lasts in first(7):
        shortest, longest = FAULTS[name].seconds
        assert shortest <= lasts <= longest


@pytest.mark.parametrize("name", sorted(slurm_faults.LIES))
def test_a_stand_in_takes_a_clients_place_and_goes_again(name: str, tmp_path: Path) -> None:
    client = slurm_faults.LIES[name][0]
    shown = slurm_faults.lies(tmp_path, name)
    assert next(shown) == client
    assert (tmp_path / client).stat().st_mode & 0o111
    assert list(shown) == []
    assert not (tmp_path / client).exists()
