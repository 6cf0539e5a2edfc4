"""Sixteen bits from outside: outputs in float32, and fp16's losses scaled behind the script's back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loops import ATTENTION
from script_levels import driven

from perfsweep.workloads.api import NullClock


def test_nested_outputs_are_float32_again(tmp_path: Path) -> None:
    nested = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return {"parts": (y, [y.argmax(1)]), "inside": y.dtype}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    out = model(torch.randn(3, 4))
    whole, (index,) = out["parts"]
    assert whole.dtype is torch.float32 and index.dtype is torch.int64
    inside = out["inside"]
    whole.sum().backward()
    optimizer.step()
"""
    with driven(nested, tmp_path, 1, amp="bf16") as workload:
        import __main__

        assert __main__.inside is torch.bfloat16
        workload.step(NullClock())


@pytest.mark.workloads
def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    torch.optim.AdamW([torch.zeros(1)])  # torch hooks a class's step at its first optimizer
    owners = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.AdamW, torch.nn.utils)
    before = [dict(vars(owner)) for owner in owners]
    settings = torch.get_num_threads(), torch.backends.cuda.flash_sdp_enabled()
    with driven(
        ATTENTION, tmp_path, 2, amp="fp16", threads=3, sdpa="math", optimizer="fused", zero_grad="zero"
    ):
        assert torch.get_num_threads() == 3
    assert [dict(vars(owner)) for owner in owners] == before
    assert settings == (torch.get_num_threads(), torch.backends.cuda.flash_sdp_enabled())
