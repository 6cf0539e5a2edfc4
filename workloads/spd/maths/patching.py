"""How components take the place of weights: hooks for each pass, hooks for good, or replaced modules.

All three offer the same passes. What a pass needs travels as one `Call`, which is in force during that pass
only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from perfsweep.workloads.spd.maths.components import Operands
from perfsweep.workloads.spd.maths.masked_products import (
    Call,
    Check,
    SiteMask,
    UnmaskedForm,
    folded,
    folded_rows,
    with_bias,
    with_delta,
)
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.maths.target import Target


class Patching(ABC):
    """Passes of a target with or without components.

    Parameters
    ----------
    target : the frozen network
    sites : its decomposed modules
    check : test of every mask
    unmasked : form of the products where there is no mask
    """

    def __init__(
        self,
        target: Target,
        sites: Sequence[Site],
        check: Check,
        unmasked: UnmaskedForm,
        counts: Counter[str],
    ) -> None:
        self.target = target
        self.sites = {site.name: site for site in sites}
        self.check, self.unmasked, self.counts = check, unmasked, counts
        self.leaves: dict[str, nn.Module] = {site.name: target.get_submodule(site.name) for site in sites}

    def plain(self, batch: Tensor, **where: Any) -> Tensor:
        """The target's own output."""
        return self._run(batch, Call(), **where)

    def cached(
        self, batch: Tensor, between: list[Tensor] | None = None, **where: Any
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The target's own output and what each module reads, in execution order."""
        call = Call(inputs={})
        output = self._run(batch, call, between=between, **where)
        assert call.inputs is not None
        return output, call.inputs

    def masked(
        self, batch: Tensor, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands], **where: Any
    ) -> Tensor:
        """The output with components at the modules of `masks`."""
        self._admit(masks)
        return self._run(batch, Call(masks, operands), **where)

    def masked_cached(
        self, batch: Tensor, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The output with components, and what each module reads on the way."""
        self._admit(masks)
        call = Call(masks, operands, inputs={})
        output = self._run(batch, call)
        assert call.inputs is not None
        return output, call.inputs

    def _admit(self, masks: Mapping[str, SiteMask]) -> None:
        self.counts["masked_passes"] += 1
        self.counts["masked_modules"] += len(masks)
        for mask in masks.values():
            for part in (mask.mask, mask.source):
                if part is not None:
                    self.check(part)

    @abstractmethod
    def _run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        """The target's output, with `call` at the modules it is about."""

    def close(self) -> None:  # noqa: B027 - most ways leave nothing behind
        """Give the target back as it was."""

    def _replace(self, call: Call, site: Site, x: Tensor, base: Tensor) -> Tensor | None:
        """What a hook makes of a module's own output `base` [..., out]; None leaves it."""
        if call.inputs is not None:
            call.inputs[site.name] = x
        mask = call.masks.get(site.name)
        if mask is None:
            return None
        out = with_bias(
            with_delta(x, site, call.operands[site.name], mask, self.unmasked), self.leaves[site.name]
        )
        return out if mask.route is None else torch.where(mask.route.unsqueeze(-1), out, base)


class TemporaryHooks(Patching):
    """Every pass registers and removes hooks. The module computes its product first, needed or not."""

    def _run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        hooked = self.sites if call.inputs is not None else call.masks
        with self._hooks(call, hooked):
            return self.target(batch, **where)

    @contextmanager
    def _hooks(self, call: Call, names: Mapping[str, Any]) -> Iterator[None]:
        handles: list[RemovableHandle] = []
        try:
            for name in names:
                hook = partial(self._hook, call=call, site=self.sites[name])
                handles.append(self.target.get_submodule(name).register_forward_hook(hook))
                self.counts["hook_registrations"] += 1
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(
        self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor, call: Call, site: Site
    ) -> Tensor | None:
        return self._replace(call, site, args[0], output)


class PersistentHooks(Patching):
    """Hooks registered once ask for the call in force; without one they leave the output alone."""

    def __init__(
        self,
        target: Target,
        sites: Sequence[Site],
        check: Check,
        unmasked: UnmaskedForm,
        counts: Counter[str],
    ) -> None:
        super().__init__(target, sites, check, unmasked, counts)
        self._call: Call | None = None
        self._handles = [
            self.leaves[site.name].register_forward_hook(partial(self._hook, site=site))
            for site in self.sites.values()
        ]

    def _hook(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor, site: Site) -> Tensor | None:
        return None if self._call is None else self._replace(self._call, site, args[0], output)

    def _run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        before, self._call = self._call, call
        try:
            return self.target(batch, **where)
        finally:
            self._call = before

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()


class Slot:
    """Where wrapped modules find the call in force."""

    def __init__(self) -> None:
        self.call: Call | None = None


SIZES = ("in_features", "out_features", "num_embeddings", "embedding_dim", "padding_idx", "nf", "nx")


class Wrapped(nn.Module):
    """A module in the place of a leaf, with the leaf's own parameters under their own names.

    ``y = x W^T`` is computed once and without bias; what is built from it depends on the call in force.
    """

    def __init__(self, leaf: nn.Module, site: Site, slot: Slot, unmasked: UnmaskedForm, folds: bool) -> None:
        super().__init__()
        for name, parameter in leaf.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self.site, self.slot, self.unmasked, self.folds = site, slot, unmasked, folds
        for name in SIZES:  # networks ask their layers
            if hasattr(leaf, name):
                setattr(self, name, getattr(leaf, name))

    def forward(self, x: Tensor) -> Tensor:
        call = self.slot.call
        if call is not None and call.inputs is not None:
            call.inputs[self.site.name] = x
        mask = call.masks.get(self.site.name) if call is not None else None
        if call is None or mask is None:
            return with_bias(self.site.base(x, self), self)
        return with_bias(self._components(x, call.operands[self.site.name], mask), self)

    def _components(self, x: Tensor, operands: Operands, mask: SiteMask) -> Tensor:
        routed = mask.route is not None or mask.rows is not None
        y = self.site.base(x, self) if routed or (self.folds and mask.delta is not None) else None
        if mask.rows is not None and y is not None:
            return folded_rows(x, y, self.site, operands, mask, self.unmasked)
        if self.folds:
            z = folded(x, y, self.site, operands, mask, self.unmasked)
        else:
            z = with_delta(x, self.site, operands, mask, self.unmasked)
        return z if y is None or mask.route is None else torch.where(mask.route.unsqueeze(-1), z, y)


class Wrappers(Patching):
    """Leaves replaced once.

    Parameters
    ----------
    folds : deltas are folded into the sum instead of multiplied with
    recompute : stages are computed again in the backward pass instead of kept
    """

    def __init__(
        self,
        target: Target,
        sites: Sequence[Site],
        check: Check,
        unmasked: UnmaskedForm,
        counts: Counter[str],
        folds: bool = False,
        recompute: bool = False,
    ) -> None:
        super().__init__(target, sites, check, unmasked, counts)
        self.slot = Slot()
        self._recompute = recompute
        for site in sites:
            self._put(site.name, Wrapped(self.leaves[site.name], site, self.slot, unmasked, folds))

    def _put(self, name: str, module: nn.Module) -> None:
        parent, _, leaf = name.rpartition(".")
        setattr(self.target.get_submodule(parent), leaf, module)

    def _run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        if self._recompute and call.masks and torch.is_grad_enabled():
            where["run"] = partial(self._recomputed, call)
        return self.under(call, self.target, batch, **where)

    def under(self, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
        """`function` with `call` in force; the call before it is restored, whatever happens."""
        before, self.slot.call = self.slot.call, call
        try:
            return function(*args, **kwargs)
        finally:
            self.slot.call = before

    def _recomputed(self, call: Call, stage: nn.Module, hidden: Tensor) -> Tensor:
        # The backward pass computes the stage again when this pass is long over: the call has to come along.
        return checkpoint(self.under, call, stage, hidden, use_reentrant=False, preserve_rng_state=False)  # type: ignore[return-value]

    def close(self) -> None:
        """Put the leaves back."""
        for name, leaf in self.leaves.items():
            self._put(name, leaf)
