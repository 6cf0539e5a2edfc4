"""Where results of pairs are kept."""

from __future__ import annotations

import torch

from perfsweep.workloads.probe1d.maths.solution import Reason, Solution


def test_pairs_are_out_of_budget_until_they_are_stored_and_stand_by_latent_in_the_end() -> None:
    solution = Solution.empty(3, 2, "cpu")
    assert solution.reason.tolist() == [Reason.BUDGET] * 6
    assert solution.gmax.isinf().all()
    solution.store(
        torch.tensor([[1], [4]]), b=torch.tensor([[5.0], [7.0]]), reason=torch.tensor([[Reason.DEAD]])
    )
    ranks = solution.by_latent(None)
    assert ranks["b"].tolist() == [[0, 5], [0, 0], [7, 0]]
    assert ranks["reason"].tolist() == [[3, 1], [3, 3], [1, 3]]
    assert set(ranks) == {"b", "w", "evals", "gmax", "reason"}
    assert solution.by_latent(torch.tensor([2, 0, 1]))["b"].tolist() == [[0, 0], [7, 0], [0, 5]]
    assert solution.b.dtype == torch.float64
    assert (Reason.CONVERGED, Reason.DEAD, Reason.FROZEN, Reason.BUDGET) == (0, 1, 2, 3)
