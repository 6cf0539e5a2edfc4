"""Random numbers of an iteration, in one canonical order whatever computes with them.

A stochastic term draws all component sources in execution order, then all delta sources, then k, then routing
noise. An adversarial one draws routing first, then one source per module in configuration order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.sites import Names, Site, Stacks, slots
from perfsweep.workloads.spd.presets import LossSpec

Routes = dict[str, Tensor]
"""Which positions run through components at all: bool [...] by module."""


Fill = Callable[[Iterable[Tensor], torch.Generator], None]
"""Fills tensors one after the other with numbers in [0, 1) from a generator."""


def fill(tensors: Iterable[Tensor], generator: torch.Generator) -> None:
    """By PyTorch's own calls."""
    for tensor in tensors:
        tensor.uniform_(0.0, 1.0, generator=generator)


@dataclass(frozen=True)
class Sources:
    """Draws of a stochastic term: components [..., C], deltas [...] if they take part, routes if routed."""

    components: Stacks
    deltas: Stacks | None
    routes: Routes | None


class Draws:
    """Draws for all terms of a training.

    Parameters
    ----------
    sites : in configuration order
    order : names in execution order
    groups : modules whose draws share one tensor
    canonical : fill module after module, so that stacking changes no number; else one call fills a whole
        stack
    frozen : every iteration gets the numbers of the first, drawn for the `batch` rows of a whole batch
    fill : how a list of tensors is filled
    delta : what components leave over of a weight has a source of its own
    """

    def __init__(
        self,
        sites: Sequence[Site],
        order: Sequence[str],
        groups: Sequence[Names],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        canonical: bool = True,
        frozen: bool = False,
        batch: int = 0,
        fill: Fill = fill,
        delta: bool = True,
    ) -> None:
        self.sites, self.order, self.groups = tuple(sites), tuple(order), tuple(groups)
        self.generator, self.dtype = generator, dtype
        self.device = generator.device
        self._counts = {site.name: site.count for site in sites}
        self._canonical, self._frozen = canonical, frozen
        self._batch, self._fill, self.delta = batch, fill, delta
        self._kept: list[Any] = []
        self._next = 0
        self._rows = slice(None)

    def begin(self, rows: slice = slice(None)) -> None:
        """Start the draws of a microbatch, these rows of the batch. Only frozen draws look at them."""
        self._next = 0
        self._rows = rows

    def stochastic(self, lead: torch.Size, routed: bool, binomial: bool = False) -> Sources:
        """Draws of a stochastic term at positions `lead`, the batch first."""
        found = self._once(lambda: self._stochastic(self._whole(lead), routed, binomial))
        return Sources(*(self._cut(part) for part in (found.components, found.deltas, found.routes)))

    def noise(self, lead: torch.Size) -> Stacks:
        """u in [0, 1] [..., C] for the importances of masks, drawn before all terms."""
        return self._cut(self._once(lambda: self._filled(self._empty(self._whole(lead), 0), self.order)))

    def routes(self, lead: torch.Size) -> Routes:
        """A random number of modules at each position, 1 to M with equal chances, and which."""
        return self._cut(self._once(lambda: self._subset(self._whole(lead))))

    def adversarial(self, lead: torch.Size, spec: LossSpec) -> Stacks:
        """Where the search begins: [1, .., 1, C+1] for shared sources, [..., C+1] by position.

        Without sources of deltas, C instead of C+1.
        """
        shared = spec.scope == "shared"
        shape = torch.Size([1] * len(lead)) if shared else self._whole(lead)
        found = self._once(lambda: self._start(shape, spec.init))
        return found if shared else self._cut(found)

    def kept(self, shape: torch.Size, normal: bool) -> Stacks:
        """Where sources begin that are kept [*shape, C+1]: uniform, or normal where a sigmoid bounds them."""
        stacks = self._empty(shape, extra=int(self.delta))
        if not normal:
            return self._filled(stacks, [site.name for site in self.sites])
        for tensor in slots(stacks).values():
            tensor.normal_(generator=self.generator)
        return stacks

    def random(self, lead: torch.Size) -> Stacks:
        """Uniform masks, for evaluation."""
        return self._filled(self._empty(lead, extra=0), self.order)

    def _once(self, make: Callable[[], Any]) -> Any:
        """Draw, or take what the first iteration drew in this place."""
        if not self._frozen:
            return make()
        if self._next == len(self._kept):
            self._kept.append(make())
        self._next += 1
        return self._kept[self._next - 1]

    def _whole(self, lead: torch.Size) -> torch.Size:
        return torch.Size([self._batch, *lead[1:]]) if self._frozen else lead

    def _stochastic(self, lead: torch.Size, routed: bool, binomial: bool) -> Sources:
        components = self._filled(self._empty(lead, extra=0), self.order)
        if binomial:
            components = {names: (tensor < 0.5).to(tensor) for names, tensor in components.items()}
        deltas = self._filled(self._blank(lead), self.order) if self.delta else None
        return Sources(components, deltas, self._subset(lead) if routed else None)

    def _start(self, shape: torch.Size, init: str) -> Stacks:
        stacks = self._empty(shape, extra=int(self.delta))
        if init == "random":
            return self._filled(stacks, [site.name for site in self.sites])
        return {names: tensor.fill_(float(init == "ones")) for names, tensor in stacks.items()}

    def _subset(self, lead: torch.Size) -> Routes:
        modules = len(self.sites)
        chosen = self._uniform(lead).mul_(modules).floor_().clamp_(max=modules - 1).add_(1)  # k in 1..M
        ranks = self._uniform(torch.Size([modules, *lead])).argsort(dim=0).argsort(dim=0)
        return dict(zip((site.name for site in self.sites), (ranks < chosen).unbind(0), strict=True))

    def _uniform(self, shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=self.dtype)

    def _empty(self, lead: torch.Size, extra: int) -> Stacks:
        return {
            names: self._new([*_depth(names), *lead, self._width(names) + extra]) for names in self.groups
        }

    def _blank(self, lead: torch.Size) -> Stacks:
        return {names: self._new([*_depth(names), *lead]) for names in self.groups}

    def _width(self, names: Names) -> int:
        return self._counts[next(iter(names))]

    def _new(self, shape: Sequence[int]) -> Tensor:
        return torch.empty(shape, device=self.device, dtype=self.dtype)

    def _filled(self, stacks: Stacks, order: Sequence[str]) -> Stacks:
        parts = slots(stacks) if self._canonical else None
        self._fill([parts[name] for name in order] if parts else stacks.values(), self.generator)
        return stacks

    def _cut(self, whole: Any) -> Any:
        """Of frozen draws, the rows of the microbatch."""
        if not self._frozen or whole is None:
            return whole
        return {
            names: tensor[:, self._rows] if _depth(names) else tensor[self._rows]
            for names, tensor in whole.items()
        }


def _depth(names: Names | str) -> list[int]:
    """The leading dimension of a stack: none for a single module."""
    return [len(names)] if isinstance(names, tuple) and len(names) > 1 else []
