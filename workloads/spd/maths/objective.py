"""Total loss of one microbatch: the target's pass, importances, and every term of the recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.api import Clock
from perfsweep.workloads.spd.maths import losses
from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.divergence import Divergence
from perfsweep.workloads.spd.maths.masked_passes import Moment, Passes
from perfsweep.workloads.spd.maths.patching import Patching
from perfsweep.workloads.spd.maths.random_draws import Draws
from perfsweep.workloads.spd.maths.reconstruction import Reconstruction
from perfsweep.workloads.spd.maths.sites import Stacks
from perfsweep.workloads.spd.presets import Recipe

TargetPass = Callable[..., tuple[Tensor, dict[str, Tensor]]]


@dataclass
class Functions:
    """What compilation replaces.

    Attributes
    ----------
    target : the target's output and what modules read
    importances : for masks and for minimality, of what modules read
    faithfulness, minimality : the terms without passes
    together : all other terms of prepared passes at once, where compilation joins them
    """

    target: TargetPass
    importances: Callable[[Mapping[str, Tensor], Stacks | None], tuple[Stacks, Stacks]]
    faithfulness: Callable[[Mapping[str, Tensor]], Tensor] = losses.faithfulness
    minimality: Callable[[Tensor, float | Tensor, float, bool], Tensor] = losses.minimality
    together: Callable[..., dict[str, Tensor]] | None = None


class Objective:
    """Everything between a batch and a scalar.

    Parameters
    ----------
    make_divergence : from the target's output
    autocast : around target, importances and passes; deltas and faithfulness stay outside
    """

    def __init__(
        self,
        recipe: Recipe,
        decomposition: Decomposition,
        functions: Functions,
        reconstruction: Reconstruction,
        make_divergence: Callable[[Tensor], Divergence],
        autocast: AbstractContextManager[Any],
    ) -> None:
        self.recipe, self.decomposition, self.functions = recipe, decomposition, functions
        self.reconstruction, self.make_divergence = reconstruction, make_divergence
        self.autocast = autocast

    @property
    def passes(self) -> Passes:
        """How masked passes run."""
        return self.reconstruction.passes

    @property
    def patching(self) -> Patching:
        """How components take the place of weights."""
        return self.passes.patching

    def moment(
        self, batch: Tensor, operands: Mapping[str, Operands], clock: Clock, draws: Draws | None = None
    ) -> Moment:
        """The target's pass and the importances of a microbatch.

        Parameters
        ----------
        draws : shake the importances of masks where sources are binomial; None: nothing does
        """
        with clock.phase("target"), torch.no_grad(), self.autocast:
            between: list[Tensor] | None = [] if self.passes.reuse else None
            output, inputs = self.functions.target(batch, between)
            moment = Moment(
                batch, inputs, between or [], self.make_divergence(output), operands=dict(operands)
            )
        with clock.phase("importance"), self.autocast:
            shakes = draws is not None and self.reconstruction.binomial
            noise = draws.noise(moment.lead) if draws is not None and shakes else None
            moment.lower, moment.upper = self.functions.importances(inputs, noise)
        return moment

    def terms(
        self, moment: Moment, deltas: Mapping[str, Tensor] | None, p: float | Tensor, clock: Clock
    ) -> dict[str, Tensor]:
        """Every term [] of the recipe by kind."""
        if self.functions.together is not None:
            return self._terms_together(moment, deltas, p, clock)
        found = {}
        for spec in self.recipe.losses:
            with clock.phase(f"loss_{spec.kind}"):
                if spec.kind == "faithfulness":
                    assert deltas is not None
                    found[spec.kind] = self._in_full_precision(deltas)
                elif spec.kind == "minimality":
                    found[spec.kind] = self._minimality(moment.upper, p)
                else:
                    with self.autocast:
                        found[spec.kind] = self.reconstruction(moment, spec)
        return found

    def _terms_together(
        self, moment: Moment, deltas: Mapping[str, Tensor] | None, p: float | Tensor, clock: Clock
    ) -> dict[str, Tensor]:
        assert self.functions.together is not None
        specs = [spec for spec in self.recipe.losses if spec.kind not in ("faithfulness", "minimality")]
        with clock.phase("search"), self.autocast:
            drawn = {spec.kind: self.reconstruction.prepare(moment, spec) for spec in specs}
        with clock.phase("loss_passes"), self.autocast:
            found = self.functions.together(moment, drawn, p)
        if deltas is not None and any(spec.kind == "faithfulness" for spec in self.recipe.losses):
            with clock.phase("loss_faithfulness"):
                found["faithfulness"] = self._in_full_precision(deltas)
        return found

    def total(self, terms: Mapping[str, Tensor]) -> Tensor:
        """sum of coefficient * term []"""
        return torch.stack([spec.coeff * terms[spec.kind] for spec in self.recipe.losses]).sum()

    def _in_full_precision(self, deltas: Mapping[str, Tensor]) -> Tensor:
        device_type = next(iter(deltas.values())).device.type
        with torch.autocast(device_type, enabled=False):
            return self.functions.faithfulness(deltas)

    def _minimality(self, upper: Stacks, p: float | Tensor) -> Tensor:
        parts = [
            self.functions.minimality(u, p, self.recipe.beta, len(names) > 1) for names, u in upper.items()
        ]
        return torch.stack(parts).sum()
