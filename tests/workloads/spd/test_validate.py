"""Figures that tell right and wrong decompositions apart judge whether a toy's features were found."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from perfsweep.workloads.spd import oracle, validate


def star() -> torch.Tensor:
    """The toy's columns [5, 2] by their formula."""
    angles = torch.arange(5) * (2 * math.pi / 5)
    return torch.stack([angles.cos(), angles.sin()], 1)


def right() -> dict:
    """One subcomponent for each feature, and three that are silent."""
    one_each = np.eye(5, 8)
    V, U = torch.zeros(5, 8), torch.zeros(8, 2)
    V[:, :5], U[:5] = torch.eye(5), star()
    return {
        "importances": {"linear1": one_each, "linear2": one_each.copy()},
        "V": V,
        "U": U,
        "columns": star(),
    }


def test_a_right_decomposition_is_found_and_its_figures_are_exact() -> None:
    found = oracle.judge(**right())
    assert found.found
    assert (found.ci_errors, found.distinct, found.most_active) == (0, (5, 5), (1, 1))
    assert (found.cosine, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0), abs=1e-6)
    assert found.elsewhere == pytest.approx(0.0, abs=1e-6)


def spoil_importance(case: dict) -> None:
    case["importances"]["linear1"][0, 1] = 0.2


def spoil_direction(case: dict) -> None:
    case["U"][0] = star()[1]


def spoil_length(case: dict) -> None:
    case["U"][0] *= 1.2


def spoil_energy(case: dict) -> None:
    case["V"][1, 0] = 0.2


def spoil_second_module(case: dict) -> None:
    case["importances"]["linear2"][0, :4] = 1.0


@pytest.mark.parametrize(
    "spoil", [spoil_importance, spoil_direction, spoil_length, spoil_energy, spoil_second_module]
)
def test_a_decomposition_that_is_wrong_in_one_way_is_not_found(spoil) -> None:
    case = right()
    spoil(case)
    assert not oracle.judge(**case).found


def spread_out(loss: float, importances: int) -> tuple[oracle.Recovery, float]:
    return oracle.Recovery(importances, (5, 5), (1, 1), 1.0, 1.0, 1.0, 0.0), loss


@pytest.mark.parametrize(
    ("other", "errors", "status"),
    [(2e-3, (2, 0), 0), (2e-3, (0, 2), 1), (math.nan, (0, 2), 1)],
    ids=["found by the better", "by the worse alone", "by one that diverged"],
)
def test_the_seed_with_the_lowest_loss_is_believed(monkeypatch, capsys, other, errors, status) -> None:
    results = {
        seed: spread_out(loss, count) for seed, loss, count in zip((3, 4), (other, 1e-3), errors, strict=True)
    }
    monkeypatch.setattr(validate, "train", lambda seed, steps, folder: results[seed])
    assert validate.main(["--seeds", "3", "4"]) == status
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith("1 of 2 seeds found; the lowest loss, 0.001, is seed 4's: ")
    )


@pytest.mark.slow
def test_a_toys_features_are_recovered_one_component_each(real_presets, capsys) -> None:
    assert validate.main(["--seeds", "1"]) == 0
    assert "is seed 1's: found" in capsys.readouterr().out


def test_the_loss_of_a_seed_is_the_mean_of_its_last_tenth(monkeypatch, capsys) -> None:
    monkeypatch.setattr(validate, "_loss_of_a_step", lambda workload: float(next(losses)))
    for steps, loss in ((3, 2.0), (29, 27.5)):
        losses = iter(range(steps))
        validate.main(["--seeds", "0", "--steps", str(steps)])
        assert f", loss {loss:.4g}\n" in capsys.readouterr().out


def test_an_untrained_toy_has_found_nothing_and_the_command_says_so(capsys) -> None:
    assert validate.main(["--seeds", "0", "--steps", "1"]) == 1
    assert capsys.readouterr().out.startswith("seed 0: NOT FOUND: ")
