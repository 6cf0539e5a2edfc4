"""How components take the place of weights, and where passes of the target begin and what they keep."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Toggle
from perfsweep.workloads.spd.variants.part import WRAPPED, Part, no_stages
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor, nn

    from perfsweep.workloads.spd.maths.masked_passes import Moment
    from perfsweep.workloads.spd.maths.masked_products import Call, Slot

PATCHING = Toggle(
    "patching",
    choices("temp_hooks", "persistent_hooks", "wrapper", witness="hook_registrations"),
    "how components take the place of weights: hooks for each pass, hooks for good, or replaced modules",
    "5.1",
)


class LastingHooks(Part):
    """Hooks registered once ask for the call in force; without one they leave the output alone."""

    call: Call | None

    def patch(self) -> None:
        """Register them until the end."""
        self.call = None
        for name in self.names:
            hook = partial(self.lasting, name=name)
            self.endings.callback(self.target.get_submodule(name).register_forward_hook(hook).remove)

    def lasting(
        self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor, name: str
    ) -> Tensor | None:
        """What the hook of the call in force does."""
        return None if self.call is None else self.hook(module, args, output, self.call, name)

    def run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        """The target's output with a call in force."""
        before, self.call = self.call, call
        try:
            return self.target(batch, **where)
        finally:
            self.call = before


class WrappedModules(Part):
    """Leaves replaced once."""

    slot: Slot

    def patch(self) -> None:
        """Replace them until the end."""
        from perfsweep.workloads.spd.maths.masked_products import Slot, Wrapped, put

        self.slot = Slot()
        for site in self.sites:
            leaf = self.target.get_submodule(site.name)
            put(self.target, site.name, Wrapped(leaf, site, self.slot, self.unmasked, self.folds))
            self.endings.callback(put, self.target, site.name, leaf)

    def run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        """The target's output with a call in force."""
        return self.under(call, self.target, batch, **where)

    def under(self, call: Call, function: Any, *args: Any, **kwargs: Any) -> Any:
        """`function` with `call` in force; the call before it is restored, whatever happens."""
        before, self.slot.call = self.slot.call, call
        try:
            return function(*args, **kwargs)
        finally:
            self.slot.call = before


PREFIX_REUSE = Toggle(
    "prefix_reuse",
    choices("off", "on", witness="flops", refused=no_stages, **WRAPPED),
    "restart masked passes at the first masked block",
    "5.2",
)


class FromFirstMasked(Part):
    """Passes begin at the first stage that holds a replaced module: before it all is as in the target."""

    def between(self) -> list[Tensor]:
        """Takes what each stage reads."""
        return []

    def where(self, moment: Moment, names: tuple[str, ...]) -> dict[str, Any]:
        """The stage, and what it reads."""
        stages = [self.site_of[name].stage for name in names]
        if None in stages or not stages:
            return {}
        first = min(stage for stage in stages if stage is not None)
        return {"first": first, "hidden": moment.between[first]}


GRAD_CHECKPOINTING = shared.grad_checkpointing(
    "off", "per_block", every={**WRAPPED, "refused": no_stages, "witness": "saved_bytes"}, source="8.2"
)


class RecomputedBlocks(WrappedModules):
    """Stages are computed again in the backward pass instead of kept."""

    def run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        """Where there are gradients of components."""
        import torch

        if call.masks and torch.is_grad_enabled():
            where["run"] = partial(self.recomputed, call)
        return super().run(batch, call, **where)

    def recomputed(self, call: Call, stage: nn.Module, hidden: Tensor) -> Any:
        """A stage, which brings its call along: the backward pass runs it when this pass is long over."""
        from torch.utils.checkpoint import checkpoint

        return checkpoint(self.under, call, stage, hidden, use_reentrant=False, preserve_rng_state=False)


FUSED_TARGET_OPS = Toggle(
    "fused_target_ops",
    choices("off", "on", bounds={"losses": 1e-5}, refused=no_stages, witness="ops"),
    "fused activation, norm and rotary",
)


class FusedTarget(Part):
    """The target's operations as PyTorch fuses them."""

    fused_target = True


VARIANTS = (
    Variant(PATCHING, {"persistent_hooks": LastingHooks, "wrapper": WrappedModules}),
    Variant(PREFIX_REUSE, {"on": FromFirstMasked}),
    Variant(GRAD_CHECKPOINTING, {"per_block": RecomputedBlocks}),
    Variant(FUSED_TARGET_OPS, {"on": FusedTarget}),
)
