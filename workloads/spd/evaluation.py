"""How good a decomposition is on held-out rows: batches update sums, one read makes numbers of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from perfsweep.workloads.api import NullClock
from perfsweep.workloads.spd.maths.adversarial_sources import split
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, hidden_acts, masks_of
from perfsweep.workloads.spd.maths.masked_products import Call, SiteMask
from perfsweep.workloads.spd.maths.sites import Operands, unstack
from perfsweep.workloads.spd.oracle import ci_errors
from perfsweep.workloads.spd.presets import LossSpec
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.spd.training.loop import needed

EVALUATION_SEED = 977
WORST_CASE = LossSpec("pgd", 1.0, steps=20, step_size=0.1, scope="shared")
BINS = 20
FEATURE = 0.75  # value of the one active feature that shows a toy's components


class Evaluation:
    """Evaluation of a decomposition along the passes of its arm.

    Its random numbers are its own, so that evaluating changes no later training.
    """

    def __init__(self, arm: Reference) -> None:
        self.arm, self.draws = arm, arm.drawing(EVALUATION_SEED, frozen=False)
        self.vectors = arm.spec.reads_vectors

    def run(self, step: int) -> dict[str, float]:
        """All figures as ``eval/<section>/<name>``, by one read."""
        self.draws.generator.manual_seed(EVALUATION_SEED)
        sums: dict[str, Tensor] = {}
        batches = self.arm.held_out_batches()
        for batch in batches:
            for name, value in self._of_batch(batch).items():
                sums[name] = sums.get(name, torch.zeros_like(value)) + value / len(batches)
        flat = torch.cat([value.detach().double().flatten() for value in sums.values()]).tolist()
        found: dict[str, float] = {"step": float(step)}
        for name, value in sums.items():
            part, flat = flat[: value.numel()], flat[value.numel() :]
            found |= {name: part[0]} if value.dim() == 0 else {f"{name}_{i}": x for i, x in enumerate(part)}
        found |= self._unrecovered(found)
        if self.arm.recipe.toy:
            found["eval/toy/ci_errors"] = float(ci_errors(one_feature_importances(self.arm)["linear1"]))
        return found

    def _of_batch(self, batch: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            moment = self.arm.moment(batch, self._operands(), NullClock(), self.draws)
            found = {f"eval/l0/{name}": count for name, count in needed(moment.lower).items()}
            for name, ci in unstack(moment.lower).items():
                found[f"eval/ci_histogram/{name}"] = torch.histc(ci, BINS, 0.0, 1.0) / ci.numel()
            found |= self._maskings(moment, batch)
            found["eval/hidden_acts/mse"] = hidden_acts(self.arm, moment, masks_of(Masking(moment.lower)))
        found["eval/recon/pgd"] = self._worst_case(moment)
        return found

    def _operands(self) -> dict[str, Operands]:
        arm, pairs = self.arm, self.arm.decomposition.operands()
        if arm.multiplies_deltas:
            pairs = arm.decomposition.operands(arm.deltas(pairs))
        return {name: Operands(pair.V.detach(), pair.U.detach(), pair.delta) for name, pair in pairs.items()}

    def _maskings(self, moment: Moment, batch: Tensor) -> dict[str, Tensor]:
        """Divergence, and for tokens cross-entropy, under six maskings and in the target itself."""
        found = {}
        outputs = {name: self._output(moment, masks) for name, masks in self._six(moment).items()}
        for name, output in outputs.items():
            found[f"eval/divergence/{name}"] = moment.divergence.mean(output)
            if not self.vectors:
                found[f"eval/ce/{name}"] = self._cross_entropy(output, batch)
        if not self.vectors:
            plain = self.arm.run(batch, Call())
            found["eval/ce/target"] = self._cross_entropy(plain, batch)
        return found

    def _six(self, moment: Moment) -> dict[str, dict[str, SiteMask]]:
        names = list(unstack(moment.lower))
        ci = masks_of(Masking(moment.lower))
        drawn = self.draws.stochastic(moment.lead, routed=False)
        random = unstack(self.draws.random(moment.lead))
        return {
            "ci": ci,
            "ones": {name: SiteMask(None) for name in names},
            "stochastic": masks_of(Masking(moment.lower, drawn.components)),
            "random": {name: SiteMask(random[name]) for name in names},
            "rounded": {
                name: SiteMask((mask.mask > 0.5).to(mask.mask))
                for name, mask in ci.items()
                if mask.mask is not None
            },
            "zero": {
                name: SiteMask(torch.zeros_like(mask.mask))
                for name, mask in ci.items()
                if mask.mask is not None
            },
        }

    def _output(self, moment: Moment, masks: Mapping[str, SiteMask]) -> Tensor:
        with self.arm.autocast:
            return self.arm.output(moment, masks, moment.operands)

    @staticmethod
    def _cross_entropy(logits: Tensor, batch: Tensor) -> Tensor:
        """Of the next token; the first of a row is never predicted."""
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())

    def _worst_case(self, moment: Moment) -> Tensor:
        sources = self.draws.adversarial(moment.lead, WORST_CASE)
        with self.arm.autocast:
            found = self.arm.search(
                moment, Masking(moment.lower), sources, WORST_CASE.step_size, WORST_CASE.steps
            )
            components, deltas = split(found, self.draws.delta)
            with torch.no_grad():
                worst = self.arm.divergence(
                    moment, Masking(moment.lower, components, deltas), moment.operands
                )
        return worst / moment.divergence.normaliser

    @staticmethod
    def _unrecovered(found: Mapping[str, float]) -> dict[str, float]:
        """(CE - CE of the target) / (CE at zero - CE of the target) for each masking."""
        if "eval/ce/target" not in found:
            return {}
        target, zero = found["eval/ce/target"], found["eval/ce/zero"]
        span = zero - target
        names = ("ci", "ones", "stochastic", "random", "rounded")
        return {
            f"eval/ce_unrecovered/{name}": (found[f"eval/ce/{name}"] - target) / span if span else 0.0
            for name in names
        }


@torch.no_grad()
def one_feature_importances(arm: Reference) -> dict[str, np.ndarray]:
    """Importances [f, C] of a toy's modules when one feature at a time has the value 0.75."""
    first = next(iter(arm.decomposition.named_tensors().values()))
    features = arm.spec.features
    batch = FEATURE * torch.eye(features, device=first.device, dtype=first.dtype)
    moment = arm.moment(batch, arm.decomposition.operands(), NullClock())
    return {name: ci.double().cpu().numpy() for name, ci in unstack(moment.lower).items()}
