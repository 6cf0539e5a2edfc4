"""Sources that make reconstruction as bad as possible: how they are moved, and how some are kept.

Projected gradient ascent repeats ``s <- clip(s + step * sign(d loss / d s), 0, 1)``. Upstream's persistent
PGD spreads the search over the training: a term begins where its last iteration ended, takes some steps
uphill on the batch at hand, and after the backward pass one more with the gradient of the loss itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.losses import scheduled
from perfsweep.workloads.spd.maths.random_draws import Draws
from perfsweep.workloads.spd.maths.sites import Names, Stacks, each
from perfsweep.workloads.spd.presets import LossSpec
from perfsweep.workloads.spd.specs import Adversary

Moments = tuple[Tensor, Tensor, int]
"""Averages of gradients and of their squares, and how many."""
Spread = Callable[[Stacks], Stacks]
"""From sources that are kept to those of all positions."""


def split(sources: Stacks, delta: bool = True) -> tuple[Stacks, Stacks | None]:
    """Component sources [..., C] and delta sources [...] of sources [..., C+1], or of [..., C] alone."""
    if not delta:
        return sources, None
    return each(lambda s: s[..., :-1], sources), each(lambda s: s[..., -1], sources)


def ascend(sources: Stacks, gradients: Stacks, size: float) -> Stacks:
    """One step of the search."""
    # The sign makes a step as long where the gradient is tiny (PGD: Madry et al. 2018).
    return each(lambda s, g: (s.detach() + size * g.sign()).clamp_(0.0, 1.0), sources, gradients)


def climbed(
    s: Tensor, gradient: Tensor, moments: Moments | None, adversary: Adversary, lr: float
) -> tuple[Tensor, Moments]:
    """Sources after one step uphill, by the sign of the gradient or by Adam, and the moments after it."""
    s, gradient = s.detach(), gradient.detach()
    first, second, count = moments or (torch.zeros_like(s), torch.zeros_like(s), 0)
    if adversary.optimizer == "sign":
        moved = s + lr * gradient.sign()
    else:  # with its bias corrections (Kingma and Ba 2015)
        count += 1
        first = first.lerp(gradient, 1 - adversary.beta1)
        second = second.lerp(gradient.square(), 1 - adversary.beta2)
        scale = (second / (1 - adversary.beta2**count)).sqrt() + adversary.eps
        moved = s + lr * first / (1 - adversary.beta1**count) / scale
    return moved if adversary.sigmoid else moved.clamp(0.0, 1.0), (first, second, count)


class KeptSources:
    """The sources of all persistent terms of a training.

    Parameters
    ----------
    draws : where sources begin
    iterations : of the training, over which the rate of a step is scheduled
    """

    def __init__(self, draws: Draws, iterations: int) -> None:
        self._draws, self._iterations = draws, iterations
        self._sources: dict[str, Stacks] = {}
        self._moments: dict[str, dict[Names, Moments]] = {}

    def of(self, spec: LossSpec, lead: torch.Size) -> Stacks:
        """Sources [.., C+1] of a term, by its scope for the positions `lead`; drawn where there are none."""
        if spec.kind not in self._sources:
            shape = torch.Size(_leading(_adversary(spec), lead))
            self._sources[spec.kind] = self._draws.kept(shape, normal=_adversary(spec).sigmoid)
        return self._sources[spec.kind]

    @staticmethod
    def spread(spec: LossSpec, sources: Stacks, lead: torch.Size) -> Stacks:
        """Sources in [0, 1] as masks are made from them: of all positions, or one that is shared by all."""
        adversary = _adversary(spec)
        if adversary.sigmoid:
            sources = each(torch.sigmoid, sources)
        if adversary.scope not in ("broadcast_across_batch", "repeat_across_batch"):
            return sources
        found = {}
        for names, s in sources.items():
            rows = s.dim() - len(lead) - 1  # the dimension of rows, after that of a stack's modules
            found[names] = torch.cat([s] * (lead[0] // s.shape[rows]), rows)
        return found

    def climb(self, spec: LossSpec, gradients: Mapping[Names, Tensor], iteration: int) -> None:
        """Move the sources of a term uphill by the gradients of its loss."""
        adversary, moments = _adversary(spec), self._moments.setdefault(spec.kind, {})
        rate = (adversary.lr, adversary.schedule, adversary.final_lr, adversary.lr_warmup)
        lr, sources = scheduled(iteration, self._iterations, *rate), dict(self._sources[spec.kind])
        for names, gradient in gradients.items():
            sources[names], moments[names] = climbed(
                sources[names], gradient, moments.get(names), adversary, lr
            )
        self._sources[spec.kind] = sources

    def climb_by_loss(self, spec: LossSpec, leaves: Stacks, iteration: int) -> None:
        """The step with the loss's own gradient, which the backward pass leaves times its coefficient."""
        reached = {names: s.grad / spec.coeff for names, s in leaves.items() if s.grad is not None}
        self.climb(spec, reached, iteration)

    def state(self) -> dict[str, Any]:
        """Sources and moments by term; no later step changes them."""
        return {
            "sources": dict(self._sources),
            "moments": {term: dict(m) for term, m in self._moments.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        device = self._draws.device
        self._sources = {
            term: each(lambda s: s.to(device), stacks) for term, stacks in state.get("sources", {}).items()
        }
        self._moments = {
            term: {
                names: (first.to(device), second.to(device), n) for names, (first, second, n) in kept.items()
            }
            for term, kept in state.get("moments", {}).items()
        }


def _adversary(spec: LossSpec) -> Adversary:
    assert spec.adversary is not None
    return spec.adversary


def _leading(adversary: Adversary, lead: torch.Size) -> list[int]:
    """The dimensions before that of subcomponents."""
    if adversary.scope == "single_source":
        return [1] * len(lead)
    rows = {"broadcast_across_batch": 1, "repeat_across_batch": adversary.n_sources}
    return [rows.get(adversary.scope, lead[0]), *lead[1:]]
