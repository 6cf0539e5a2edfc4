"""Settings of the process: precision, kernels of cuDNN and attention, threads, Python's collector."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import torch
from torch.nn import attention
from torch.nn.attention import SDPBackend
from torch.nn.modules.conv import _ConvNd

from perfsweep.workloads.api import LevelValue
from perfsweep.workloads.script.changes.scene import NO_MODULE, Scene
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.training.precision import set_tf32


def own_setting(name: str, scene: Scene, level: LevelValue) -> str | None:
    """Why a setting is not touched: the script has touched it."""
    reason = scene.own.reasons.get(name)
    return f"{reason} itself" if reason else None


def begin_tf32(scene: Scene, level: LevelValue) -> None:
    """Let products run in TF32."""
    set_tf32(True, scene.undo)


def benchmark_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why cuDNN has nothing to choose."""
    if reason := own_setting("cudnn_benchmark", scene, level):
        return reason
    if not scene.modules:
        return NO_MODULE
    inner = (one for module in scene.modules for one in module.modules())
    return (
        None
        if any(isinstance(one, _ConvNd) for one in inner)
        else "has no convolution in the modules it calls"
    )


def begin_benchmark(scene: Scene, level: LevelValue) -> None:
    """Let cuDNN time its algorithms for each new shape."""
    put(scene.undo, torch.backends.cudnn, "benchmark", True)


def threads_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why another number of threads is none, or is the script's own business."""
    if reason := own_setting("threads", scene, level):
        return reason
    return f"runs with threads={level} already" if torch.get_num_threads() == int(level) else None


def begin_threads(scene: Scene, level: LevelValue) -> None:
    """Compute an operation with so many threads."""
    scene.undo.callback(torch.set_num_threads, torch.get_num_threads())
    torch.set_num_threads(int(level))


def begin_collector(scene: Scene, level: LevelValue) -> None:
    """Exempt what exists from collections, or collect no more."""
    if level == "frozen":
        gc.collect()
        gc.freeze()
        scene.undo.callback(gc.unfreeze)
    else:
        gc.disable()
        scene.undo.callback(gc.enable)


def counts(scene: Scene) -> Mapping[str, float]:
    """What shows that a setting acts: iterations under it."""
    iterations = scene.watched.counts["iterations"]
    return {
        "tf32_iterations": iterations * (torch.backends.cuda.matmul.fp32_precision == "tf32"),
        "benchmarked_iterations": iterations * torch.backends.cudnn.benchmark,
        "uncollected_iterations": iterations * (not gc.isenabled()),
        "frozen_iterations": iterations * (gc.get_freeze_count() > scene.own.frozen_before),
        "threads": torch.get_num_threads(),
    }


BACKENDS: Mapping[str, SDPBackend] = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""What each level of the toggle `sdpa` allows alone."""


def attention_obstacle(scene: Scene, level: LevelValue) -> str | None:
    """Why no kernel can be chosen."""
    if reason := scene.own.reasons.get("sdpa"):
        return f"{reason} itself"
    if scene.attention.before:
        return None
    return "is not seen to call scaled_dot_product_attention in a way that a fused kernel computes"


def begin_attention(scene: Scene, level: LevelValue) -> None:
    """Let the kernel of `level` alone be chosen, from here on."""
    scene.undo.enter_context(attention.sdpa_kernel(BACKENDS[str(level)]))
