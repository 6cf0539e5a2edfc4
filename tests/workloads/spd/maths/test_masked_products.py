"""From importances to masks: values and slopes of every sigmoid, and masks that are refused."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.spd.maths.masked_products import FORMS, check_waiting

G = [-1.0, 0.0, 0.25, 1.0, 3.0]


def value_and_slope(form: str, which: int, incoming: float) -> tuple[list[float], list[float]]:
    g = torch.tensor(G, dtype=torch.float64, requires_grad=True)
    found = FORMS[form][which](g)
    found.backward(torch.full_like(found, incoming))
    assert g.grad is not None
    return found.tolist(), g.grad.tolist()


@pytest.mark.parametrize(
    ("incoming", "slopes"),
    # Below zero nothing but what raises g leaks through.
    [(2.0, [0.0, 0.0, 2.0, 2.0, 0.0]), (-2.0, [-0.02, -0.02, -2.0, -2.0, 0.0])],
)
def test_masks_are_clamped_and_dead_components_can_come_back(incoming: float, slopes: list[float]) -> None:
    values, found = value_and_slope("leaky_hard", 0, incoming)
    assert values == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert found == pytest.approx(slopes)


@pytest.mark.parametrize("which", [0, 1])
def test_other_sigmoids_are_one_form_for_both(which: int) -> None:
    assert value_and_slope("hard", which, 1.0)[0] == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert value_and_slope("normal", which, 1.0)[0] == pytest.approx(torch.tensor(G).sigmoid().tolist())


@pytest.mark.parametrize("bad", [-1e-6, 1 + 1e-6])
def test_a_mask_beyond_its_range_is_refused_and_the_ends_are_none(bad: float) -> None:
    check_waiting(torch.tensor([0.0, 1.0, float("nan")]))
    mask = torch.tensor([0.5, bad, 0.5])
    with pytest.raises(ValueError, match=r"a mask must lie in \[0, 1\]"):
        check_waiting(mask)
