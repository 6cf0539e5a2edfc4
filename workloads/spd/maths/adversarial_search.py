"""Sources that make reconstruction as bad as possible, found by projected gradient ascent.

``n`` times: s <- clip(s + step * sign(d loss / d s), 0, 1). Routing is drawn once; the pass after the search,
with all gradients, is the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, Passes
from perfsweep.workloads.spd.maths.persistent_sources import Moments, climbed
from perfsweep.workloads.spd.maths.sites import Names, Stacks, each
from perfsweep.workloads.spd.presets import LossSpec
from perfsweep.workloads.spd.specs import Adversary

Spread = Callable[[Stacks], Stacks]


def split(sources: Stacks, delta: bool = True) -> tuple[Stacks, Stacks | None]:
    """Component sources [..., C] and delta sources [...] of sources [..., C+1], or of [..., C] alone."""
    if not delta:
        return sources, None
    return each(lambda s: s[..., :-1], sources), each(lambda s: s[..., -1], sources)


def ascend(sources: Stacks, gradients: Mapping[tuple[str, ...], Tensor], size: float) -> Stacks:
    """One step of the search."""
    # The sign makes a step as long where the gradient is tiny (PGD: Madry et al. 2018).
    return {
        names: (s.detach() + size * gradients[names].sign()).clamp_(0.0, 1.0) for names, s in sources.items()
    }


class Search:
    """The inner loop through the whole graph, parameters and importances too; differentiates the mean.

    Parameters
    ----------
    delta : the last source of a module is that of what its components leave over
    """

    sums = False
    """Whether the sum over positions is differentiated."""

    def __init__(self, passes: Passes, counts: Counter[str], delta: bool = True) -> None:
        self.passes, self.counts, self.delta = passes, counts, delta

    def __call__(self, moment: Moment, about: Masking, sources: Stacks, spec: LossSpec, steps: int) -> Stacks:
        """Sources [.., C+1] after `steps` steps of ascent, for the modules and routes of `about`."""
        about, operands = self._ingredients(about, moment.operands)
        for _ in range(steps):
            gradients = self._gradients(moment, about, operands, sources)
            sources = ascend(sources, gradients, spec.step_size)
        return {key: s.detach() for key, s in sources.items()}

    def mean_gradients(self, moment: Moment, about: Masking, sources: Stacks, spread: Spread) -> Stacks:
        """Gradients of the loss towards sources, of which `spread` makes those of all positions."""
        about, operands = self._ingredients(about, moment.operands)
        found = self._gradients(moment, about, operands, sources, spread)
        return each(lambda g: g / moment.divergence.normaliser, found) if self.sums else found

    def _gradients(
        self,
        moment: Moment,
        about: Masking,
        operands: Mapping[str, Operands],
        sources: Stacks,
        spread: Spread = lambda sources: sources,
    ) -> Stacks:
        leaves = {key: s.detach().requires_grad_(True) for key, s in sources.items()}
        components, deltas = split(spread(leaves), self.delta)
        loss = self._loss(moment, replace(about, sources=components, deltas=deltas), operands)
        self.counts["pgd_passes"] += 1
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    def _ingredients(
        self, about: Masking, operands: Mapping[str, Operands]
    ) -> tuple[Masking, Mapping[str, Operands]]:
        return about, operands

    def _loss(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        return self.passes.divergence(moment, masking, operands) / moment.divergence.normaliser


class DetachedSearch(Search):
    """The inner loop without the graph of parameters and importances; signs count, so the sum will do."""

    sums = True

    def _ingredients(
        self, about: Masking, operands: Mapping[str, Operands]
    ) -> tuple[Masking, Mapping[str, Operands]]:
        lower = {names: c.detach() for names, c in about.lower.items()}
        return replace(about, lower=lower), {name: pair.detached() for name, pair in operands.items()}

    def _loss(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        return self.passes.divergence(moment, masking, operands)


class Steps:
    """How many steps each search makes: as many as the recipe says."""

    def of(self, spec: LossSpec, iteration: int) -> int:
        """Steps of the search in this iteration."""
        return spec.steps

    def size(self, spec: LossSpec) -> float:
        """Length of each step."""
        return spec.step_size

    def start(self, term: str, drawn: Stacks) -> Stacks:
        """Where the search of a term begins."""
        return drawn

    def finish(self, term: str, sources: Stacks) -> None:
        """Take the gradient that the backward pass leaves at the sources of the loss."""

    def state(self) -> dict[str, Any]:
        """What a resumed training needs."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


class ScheduledSteps(Steps):
    """One step at first, all from half of training on: early masks are far from the worst case."""

    def __init__(self, iterations: int) -> None:
        self._half = max(iterations // 2, 1)

    def of(self, spec: LossSpec, iteration: int) -> int:
        return min(spec.steps, 1 + (max(spec.steps - 1, 0) * min(iteration, self._half)) // self._half)


class EverySteps(Steps):
    """A search in every fourth iteration; the others take the sources as they are drawn."""

    PERIOD = 4

    def of(self, spec: LossSpec, iteration: int) -> int:
        return spec.steps if iteration % self.PERIOD == 0 else 0


class LargerSteps(Steps):
    """A quarter of the steps, longer to reach as far; no step need exceed the sources' range of 1."""

    FEWER = 4

    def of(self, spec: LossSpec, iteration: int) -> int:
        return min(spec.steps, max(spec.steps // self.FEWER, 1))

    def size(self, spec: LossSpec) -> float:
        return min(spec.step_size * spec.steps / max(self.of(spec, 0), 1), 1.0)


class FixedSteps(Steps):
    """As many steps as are given here; none compares losses at sources that no rounding has moved."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def of(self, spec: LossSpec, iteration: int) -> int:
        return self._steps


class PersistentSources(Steps):
    """No search: sources are kept, and the loss's own backward pass moves them by one step of Adam."""

    def __init__(self) -> None:
        self._kept: dict[str, Stacks] = {}
        self._moments: dict[str, dict[Names, Moments]] = {}

    def of(self, spec: LossSpec, iteration: int) -> int:
        return 0

    def start(self, term: str, drawn: Stacks) -> Stacks:
        kept = self._kept.setdefault(term, drawn)
        return {names: s.detach().requires_grad_(True) for names, s in kept.items()}

    def finish(self, term: str, sources: Stacks) -> None:
        """Ascend by Adam."""
        moments = self._moments.setdefault(term, {})
        self._kept[term] = {
            names: self._moved(moments, names, s, s.grad) if s.grad is not None else s.detach()
            for names, s in sources.items()
        }

    @staticmethod
    def _moved(moments: dict[Names, Moments], names: Names, s: Tensor, gradient: Tensor) -> Tensor:
        moved, moments[names] = climbed(s, gradient, moments.get(names), Adversary(), Adversary.lr)
        return moved

    def state(self) -> dict[str, Any]:
        """Sources and their averages."""
        return {"kept": dict(self._kept), "moments": {term: dict(m) for term, m in self._moments.items()}}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        # A training whose search kept nothing leaves nothing: sources are drawn.
        self._kept, self._moments = dict(state.get("kept", {})), dict(state.get("moments", {}))
