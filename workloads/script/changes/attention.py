"""The choice of scaled_dot_product_attention's kernel."""

from __future__ import annotations

from collections.abc import Mapping

from torch.nn import attention
from torch.nn.attention import SDPBackend

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import Scene

BACKENDS: Mapping[str, SDPBackend] = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""What each level of the toggle `sdpa` allows alone."""


def obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no kernel can be chosen."""
    if reason := scene.own.reasons.get("sdpa"):
        return f"{reason} itself"
    if scene.attention.before:
        return None
    return "is not seen to call scaled_dot_product_attention in a way that a fused kernel computes"


def begin(scene: Scene, level: LevelValue) -> None:
    """Let the kernel of `level` alone be chosen, from here on."""
    scene.undo.enter_context(attention.sdpa_kernel(BACKENDS[str(level)]))
