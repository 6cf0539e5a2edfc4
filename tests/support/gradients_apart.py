"""How far gradients of two paths are apart."""

from __future__ import annotations

import torch


def worst(arm: dict[str, torch.Tensor], reference: dict[str, torch.Tensor]) -> float:
    """Largest relative distance of any term or gradient; infinite where something is missing or no number."""
    if arm.keys() != reference.keys():
        return torch.inf
    found = [float((arm[name] - one).norm() / one.norm().clamp(min=1e-30)) for name, one in reference.items()]
    return max(one if one == one else torch.inf for one in found)
