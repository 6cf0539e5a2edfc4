"""The implementations of an optimiser's update."""

from __future__ import annotations

from typing import Any

UPDATES: dict[str, dict[str, Any]] = {
    # PyTorch by itself takes `foreach` on CUDA and the loop elsewhere; the baseline is the loop everywhere.
    "default": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""Options of an optimiser of torch.optim for each level of the toggle `optimizer`."""
