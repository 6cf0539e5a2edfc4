"""The smallest and the largest values of latents, from rows as they are and from padded ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import Csr
from perfsweep.workloads.probe1d.maths.buckets import Bucket
from perfsweep.workloads.probe1d.maths.prepared_rows import PreparedRows

X = Csr(
    torch.tensor([0, 2, 4, 5]), torch.tensor([0, 1, 0, 2, 1]), torch.tensor([3.0, -0.5, -1.0, 4.0, 2.0]), 3
)
PADDED = SimpleNamespace(
    buckets=[
        Bucket(0, 2, torch.tensor([[3.0, -1.0, 0.0], [-0.5, 2.0, 0.0]])),
        Bucket(2, 3, torch.tensor([[4.0]])),
    ]
)


@pytest.mark.parametrize("layout", [None, PADDED], ids=["events", "padded"])
def test_least_and_largest_of_what_is_there(layout) -> None:
    rows = SimpleNamespace(x=X, layout=layout)
    assert PreparedRows.least(rows).tolist() == [1.0, 0.5, 4.0]  # type: ignore[arg-type]
    assert PreparedRows.reach(rows).tolist() == [3.0, 2.0, 4.0]  # type: ignore[arg-type]
