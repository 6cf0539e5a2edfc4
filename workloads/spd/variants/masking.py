"""What masked passes multiply and test: rows, deltas, stacks, masks, and both softmaxes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Device, Level, Levels, Parity, Toggle
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.part import WRAPPED, Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.spd.maths.losses import Divergence
    from perfsweep.workloads.spd.maths.masked_passes import Masking
    from perfsweep.workloads.spd.maths.sites import Site


def needs_host_rows(device: Device) -> str | None:
    """Reason why routed rows cannot be gathered here: elsewhere the host would wait for their number."""
    return (
        None
        if device.type == "cpu"
        else f"the number of routed rows has to be known on the host, and {device.type} would wait"
    )


ROUTED_ROWS = Toggle(
    "routed_rows",
    choices("all", "gathered", requires={"delta": ("folded",)}, unsupported=needs_host_rows, witness="flops"),
    "multiply all positions and drop positions that are not routed, or multiply the routed ones",
)


class RoutedRows(Part):
    """Modules multiply the routed positions only."""

    def gathered(self, drawn: Masking) -> Masking:
        """Routes as row numbers."""
        from perfsweep.workloads.spd.maths.masked_passes import rows_of

        if drawn.routes is None:
            return drawn
        rows = {name: rows_of(route) for name, route in drawn.routes.items()}
        return replace(drawn, routes=None, rows=rows)


DELTA = Toggle(
    "delta",
    (
        Level("naive"),
        Level("cached_w", witness="weight_fetches"),
        Level("folded", witness="flops", **WRAPPED),
    ),
    "the part of a weight that components leave over: built, built from a cached weight, or folded into"
    " the sum",
    "6.1",
)


class CachedWeights(Part):
    """Fetches each weight once.

    The field report caches by ``functools.lru_cache`` on the method, which keeps the model alive as long as
    the class and goes on serving old weights after a reload. This cache belongs to the training.
    """

    def build(self) -> None:
        """Nothing has been fetched."""
        self.weights: dict[str, Tensor] = {}
        super().build()

    def weight(self, site: Site) -> Tensor:
        """W [out, in], looked up at the first call."""
        if site.name not in self.weights:
            self.weights[site.name] = super().weight(site)
        return self.weights[site.name]


class FoldedDeltas(Part):
    """x D^T is what a module's own product lacks, so no pass multiplies with D."""

    folds = True

    @property
    def multiplies_deltas(self) -> bool:
        """Never."""
        return False


UNMASKED_FORM = Toggle(
    "unmasked_form",
    choices("two_step", "fused", witness="flops"),
    "unmasked components by two products, or by one",
    "6.2",
)


class OneProduct(Part):
    """x (V U) where there is no mask."""

    def build(self) -> None:
        """Before modules are wrapped, which ask for it."""
        from perfsweep.workloads.spd.maths.masked_products import fused

        self.unmasked = fused
        super().build()


def _unless_canonical(config: SpdConfig, levels: Levels) -> Parity | None:
    return None if config.canonical_draws else Parity.STOCHASTIC


STACK_MODULES = Toggle(
    "stack_modules",
    choices("loop", "stacked", loosened=_unless_canonical, witness="ops", **WRAPPED),
    "treat modules of one shape together",
    "6.3",
)


class StackedModules(Part):
    """Modules of one shape are in one tensor."""

    stacked = True


MASK_CHECKS = Toggle("mask_checks", choices("sync", "off", witness="host_reads"), "range checks of masks")


class UncheckedMasks(Part):
    """Masks are taken as they are."""

    def check(self, mask: Tensor) -> None:
        """No test."""


TARGET_SOFTMAX = Toggle(
    "target_softmax",
    # What cancels between the two forms leaves an error in nats, whatever the size of the divergence.
    choices("recompute", "cached", bounds={"divergence": 2e-6, "losses": 1e-4}, witness="softmax_rows"),
    "softmax and entropy of the target once for all passes",
)


class CachedSoftmax(Part):
    """The target's softmax once."""

    def distance(self, output: Tensor) -> Divergence:
        """Of a language model; vectors have no softmax."""
        from perfsweep.workloads.spd.maths.losses import CachedKl

        return super().distance(output) if self.spec.reads_vectors else CachedKl(output, self.counts)


DRAWS = Toggle(
    "draws",
    choices("torch", "native", unsupported=shared.needs_host_compiler, witness="ops"),
    "random numbers of masks by PyTorch's calls, or the same numbers by a kernel in vectors",
)


class VectorDraws(Part):
    """The same numbers, many at once."""

    def build(self) -> None:
        """Before draws are made, which take it."""
        from perfsweep.workloads.spd.kernels import native

        self.fill = native.fill_uniform
        super().build()


VARIANTS = (
    Variant(ROUTED_ROWS, {"gathered": RoutedRows}),
    Variant(DELTA, {"cached_w": CachedWeights, "folded": FoldedDeltas}),
    Variant(UNMASKED_FORM, {"fused": OneProduct}),
    Variant(STACK_MODULES, {"stacked": StackedModules}),
    Variant(MASK_CHECKS, {"off": UncheckedMasks}),
    Variant(TARGET_SOFTMAX, {"cached": CachedSoftmax}),
    Variant(DRAWS, {"native": VectorDraws}),
)
