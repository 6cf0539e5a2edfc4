"""What products are computed in: 16 bits, TF32, and kernels for the widest vectors."""

from __future__ import annotations

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Levels
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.part import Part
from perfsweep.workloads.variant import Variant

# Bounds of the cosines are 1 - cosine: on the mean over modules, and on the worst module.
HALF_IN_MAIN_PASS = {"losses": 1e-2, "importance_mean": 1e-3, "importance_worst": 1e-2}
BFLOAT16 = {"losses": 5e-3, "importance_mean": 2e-3, "importance_worst": 1e-2}

TF32 = shared.tf32(every={"bounds": HALF_IN_MAIN_PASS, "witness": "tf32_products"}, source="4.1")


class Tf32Products(Part):
    """Products of float32 on tensor cores."""

    tf32 = True


def _unscaled(config: SpdConfig, levels: Levels) -> str | None:
    own = any(loss.persistent for loss in config.recipe.losses)
    return "persistent terms hand gradients to their sources, which a scaled loss changes" if own else None


AMP = shared.amp(
    every={"witness": "low_precision_ops"},
    each={
        "bf16": {"bounds": BFLOAT16},
        "fp16": {"bounds": HALF_IN_MAIN_PASS, "requires": {"pgd_inner": ("detached",)}, "refused": _unscaled},
    },
    source="4",
)


class HalfProducts(Part):
    """Target, importances and passes in 16 bits; deltas and faithfulness stay outside."""

    @property
    def amp(self) -> str:
        """The type of the level."""
        return str(self.levels["amp"])


VARIANTS = (
    Variant(TF32, {"on": Tf32Products}),
    Variant(AMP, others=HalfProducts),
    Variant(shared.products()),  # whatever steps an arm does so under these
)
