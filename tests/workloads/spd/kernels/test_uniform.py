"""The kernel's numbers are PyTorch's to the bit, wherever in the generator's words a call begins or ends."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.spd.kernels.native import WORDS, fill_uniform

pytestmark = pytest.mark.workloads


def both(shapes: list[tuple[int, ...]], dtype: torch.dtype, before: int = 0) -> tuple[list, list]:
    """Numbers and the generator's state behind them, by the kernel and by PyTorch."""
    found = []
    for by_kernel in (True, False):
        generator = torch.Generator().manual_seed(5)
        torch.rand(before, generator=generator)
        tensors = [torch.empty(shape, dtype=dtype) for shape in shapes]
        if by_kernel:
            fill_uniform(tensors, generator)
        else:
            for tensor in tensors:
                tensor.uniform_(0.0, 1.0, generator=generator)
        found.append([*tensors, generator.get_state()])
    return found[0], found[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("before", [0, 1, WORDS - 1, WORDS])
@pytest.mark.parametrize("shapes", [[(1,)], [(3, 650), (7,)], [(WORDS,), (2, WORDS)], [(0,), (2000,)]])
def test_numbers_and_state_are_pytorch_s(shapes, before, dtype) -> None:
    ours, theirs = both(shapes, dtype, before)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
