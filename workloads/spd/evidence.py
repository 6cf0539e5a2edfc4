"""What parity compares: gradients and divergences of one batch at initial values; all arms share sources."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.spd.evaluation import one_feature_importances
from perfsweep.workloads.spd.maths.losses import faithfulness
from perfsweep.workloads.spd.oracle import ci_errors
from perfsweep.workloads.spd.reference import Reference

RANK = 48  # of the factorisation that faithfulness is tried on


@dataclass
class Probe:
    """Gradients and terms of the first rows, along the arm's own path.

    Adversarial sources stay as they are drawn: rounding flips the sign of a few of their gradients, and a
    search would turn that into other sources.
    """

    gradients: dict[str, Tensor]
    terms: dict[str, Tensor]
    arm: Reference

    @staticmethod
    def of(arm: Reference, batch: Tensor) -> Probe:
        """Run the probe on a batch and leave the training as it was."""
        generator, kept = arm.draws.generator.get_state(), arm.kept.state()
        recipe, still = arm.recipe, tuple(replace(loss, steps=0) for loss in arm.recipe.losses)
        arm.recipe = replace(recipe, losses=still)
        arm.updates.zero()
        arm.schedule()
        terms, _ = arm.gradients(batch, NullClock())
        scale = arm.updates.scaler.get_scale()
        gradients = {name: grad / scale for name, grad in arm.decomposition.named_gradients().items()}
        arm.updates.zero()
        arm.recipe = recipe
        arm.ends.clear()
        arm.kept.load(kept)
        arm.draws.generator.set_state(generator)
        return Probe(gradients, terms, arm)

    def tensors(self) -> dict[str, Tensor]:
        """All gradients in a row, the importance functions' by module, and the divergence of each term.

        In the precision they were computed in: it decides how much rounding parity allows.
        """
        gradients = torch.cat([grad.flatten().cpu() for grad in self.gradients.values()])
        rows = importance_rows(self.gradients).to(gradients.dtype)
        divergences = [
            value for name, value in sorted(self.terms.items()) if name not in ("faithfulness", "minimality")
        ]
        return {
            "gradients": gradients,
            "importance_mean": rows,
            "importance_worst": rows,
            "divergence": (torch.stack(divergences).cpu() if divergences else torch.zeros(1)).to(
                gradients.dtype
            ),
        }

    def numbers(self) -> dict[str, float]:
        """For toys, how far importances of single features are from one component each."""
        if not self.arm.recipe.toy:
            return {}
        return {"ci_errors": float(ci_errors(one_feature_importances(self.arm)["linear1"]))}


def importance_rows(gradients: Mapping[str, Tensor]) -> Tensor:
    """The gradient of each module's importance function as a row of unit length [M, longest]."""
    by_module: dict[str, list[Tensor]] = {}
    for name, grad in gradients.items():
        kind, key, *_ = name.split(".")
        if kind == "importance":
            by_module.setdefault(key, []).append(grad.flatten().double().cpu())
    rows = [torch.cat(parts) for parts in by_module.values()]
    longest = max(len(row) for row in rows)
    return torch.stack(
        [torch.nn.functional.pad(row / row.norm().clamp(min=1e-300), (0, longest - len(row))) for row in rows]
    )


def exact_faithfulness(device: torch.device, autocast: AbstractContextManager[Any]) -> float:
    """Faithfulness of a factorisation that leaves nothing over, under the arm's own precision.

    V and U hold multiples of 1/8, whose products float32 adds up exactly: whatever is left over is rounding
    that autocast or TF32 brought in.
    """
    generator = torch.Generator().manual_seed(0)
    V = torch.randint(-8, 9, (2 * RANK, RANK), generator=generator).float().to(device) / 8
    U = torch.randint(-8, 9, (RANK, 3 * RANK), generator=generator).float().to(device) / 8
    weight = (V.double() @ U.double()).float().T
    with autocast, torch.autocast(device.type, enabled=False):
        return float(faithfulness({"exact": weight - (V @ U).T}))
