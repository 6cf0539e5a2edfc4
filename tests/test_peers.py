"""What `make peers` counts: plants that are found, calls that are wrong, and how far figures lie off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peers.__main__ import found, off, table, wrong
from peers.step import PLANTS, PRODUCTS, step
from peers.tools import Said
from peers.workload import BASE, Peer

from perfsweep.workloads.api import Context, Device, NullClock

HONEST = {0: Said(1.004, False), 1: Said(1.012, False), 2: Said(1.022, True), 5: Said(1.049, True)}
HASTY = {0: Said(1.05, True), 1: Said(0.95, True), 2: Said(1.4, True), 5: Said(1.05, False)}


def test_a_plant_is_found_where_it_is_called_slower() -> None:
    assert [plant for plant in PLANTS if found(HONEST, plant)] == [2, 5]
    assert [plant for plant in PLANTS if found(HASTY, plant)] == [0, 2]


def test_a_call_on_equal_arms_and_a_wrong_sign_are_wrong() -> None:
    assert (wrong(HONEST), wrong(HASTY)) == (0, 2)


def test_figures_are_off_by_their_median_distance_from_what_was_planted() -> None:
    assert off([HONEST]) == pytest.approx(0.002) and off([HASTY]) == pytest.approx(0.055)


def test_the_table_has_a_row_for_each_tool() -> None:
    rows = table({"a": [HONEST, HASTY], "b": [HONEST]}, {"a": [10.0, 12.0], "b": [9.0]}).splitlines()
    assert rows[2] == "| a | 11 | 0 of 2 | 2 of 2 | 1 of 2 | 2 of 8 | 0.3% |"
    assert rows[3] == "| b | 9 | 0 of 1 | 1 of 1 | 1 of 1 | 0 of 4 | 0.2% |"


@pytest.mark.parametrize("plant", PLANTS)
def test_a_plant_is_that_many_per_cent_more_of_the_same_products(plant: int) -> None:
    products = step(plant)()
    assert len(products) == PRODUCTS + plant


def worked(plant: int) -> tuple[int, torch.Tensor]:
    """Products of one iteration of the arm that perfsweep times, and what comes out."""
    arm = Peer()
    arm.setup(Peer.Config(), {"plant": plant}, Context(device=Device(), scratch_dir=Path(), cache_dir=Path()))
    arm.step(NullClock())
    return len(arm._products), arm.evidence().tensors["product"]


def test_perfsweep_times_the_step_of_the_other_tools_and_its_equal_arm_is_one_of_its_levels() -> None:
    products, result = worked(BASE)
    assert products == PRODUCTS
    for plant in PLANTS:
        more, same = worked(plant)
        assert more == PRODUCTS + plant
        torch.testing.assert_close(same, step(plant)()[-1], rtol=0, atol=0)
        torch.testing.assert_close(same, result, rtol=0, atol=0)
