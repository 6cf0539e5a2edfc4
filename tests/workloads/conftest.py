"""What tests of several workloads need."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def no_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch.compile capture graphs as for inductor, and PyTorch's kernels run them.

    What is captured, how often, and what it computes is the same; minutes of a C++ compiler are not spent.
    """
    fully = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda call, **options: fully(call, **{**options, "backend": "aot_eager", "mode": None}),
    )
