"""All that is trained for one frozen model: its adapter and, if asked for, LoRA and a deep prefix.

Low-rank additions to frozen matrices are trained in their stead (LoRA: Hu et al. 2021). They are next to the
frozen model, never in it: a pass that is not given them computes what the model computed before, so the
teacher needs no switch and its cache no other name.

Dimensions: B rows, M latents, d model width, g key heads, e head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.maths.encoder import Adapter, LatentEncoder
from perfsweep.workloads.latentwire.presets import LORA_TARGETS, NORMS, LMConfig


def matrix_shapes(config: LMConfig) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of every matrix of a layer."""
    d, wide, narrow = config.d_model, config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    mlp = {"gate": (config.d_ff, d), "up": (config.d_ff, d), "down": (d, config.d_ff)}
    return {"q": (wide, d), "k": (narrow, d), "v": (narrow, d), "o": (d, wide), **mlp}


class LowRank(nn.Module):
    """scale * B A for a matrix [out, in]: A [r, in] drawn; B [out, r] zero, to start at the frozen model."""

    def __init__(self, outputs: int, inputs: int, rank: int, scale: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.a = nn.Parameter(torch.empty(rank, inputs).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out], in the type and on the device of x, wherever the parameters are"""
        return F.linear(F.linear(x, self.a.to(x)) * self.scale, self.b.to(x))


class LayerLora(nn.Module):
    """Additions to some matrices of one layer, by name."""

    def __init__(self, config: LMConfig, targets: Sequence[str], rank: int, scale: float) -> None:
        super().__init__()
        shapes = matrix_shapes(config)
        for name in LORA_TARGETS:
            setattr(self, name, LowRank(*shapes[name], rank, scale) if name in targets else None)


class Lora(nn.Module):
    """Additions to the first layers of a model.

    Parameters
    ----------
    layers : how many, from the first; None: all
    targets : names of matrices, of `LORA_TARGETS`
    rank, alpha : products B A of `rank` columns count alpha / rank times
    """

    def __init__(
        self, config: LMConfig, targets: Sequence[str], rank: int, alpha: float, layers: int | None = None
    ) -> None:
        super().__init__()
        count = config.n_layers if layers is None else layers
        self.layers = nn.ModuleList(LayerLora(config, targets, rank, alpha / rank) for _ in range(count))

    def of(self, number: int) -> nn.Module | None:
        """Additions to layer `number`; None after the last that has any."""
        return self.layers[number] if number < len(self.layers) else None


class _Adapted:
    """A frozen matrix and what is added to its outputs; used like the matrix alone."""

    def __init__(self, frozen: Any, addition: nn.Module) -> None:
        self.frozen, self.addition = frozen, addition

    def __call__(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.addition(x)


class _AdaptedLayer:
    """Weights of a layer as `run_layer` reads them."""

    def __init__(self, layer: Any, lora: LayerLora) -> None:
        for name in NORMS:
            setattr(self, name, getattr(layer, name))
        for name in LORA_TARGETS:
            frozen, addition = getattr(layer, name), getattr(lora, name)
            setattr(self, name, frozen if addition is None else _Adapted(frozen, addition))


def adapted(layer: Any, lora: Any) -> Any:
    """A layer with its additions, whole or gathered: whatever is called like `Weight`."""
    return _AdaptedLayer(layer, lora)


class DeepPrefix(nn.Module):
    """Linear maps from soft tokens to unrotated keys and values of every layer, all in one matrix.

    Deep prompts as in P-tuning v2 (Liu et al. 2022), made from the source instead of learned once for a task.
    """

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self._heads, self._head_dim, self._layers = config.n_kv_heads, config.head_dim, config.n_layers
        self.map = nn.Linear(config.d_model, config.n_layers * 2 * config.n_kv_heads * config.head_dim)

    def forward(self, soft: Tensor) -> list[tuple[Tensor, Tensor]]:
        """soft [B, M, d] -> keys and values [B, g, M, e] of every layer"""
        parts = (
            self.map(soft)
            .unflatten(-1, (2 * self._layers, self._heads, self._head_dim))
            .permute(2, 0, 3, 1, 4)
            .unbind()
        )
        return list(zip(parts[::2], parts[1::2], strict=True))


class Trained(nn.Module):
    """The trainables of one model."""

    def __init__(self, adapter: Adapter, lora: Lora | None = None, deep: DeepPrefix | None = None) -> None:
        super().__init__()
        self.adapter, self.lora, self.deep = adapter, lora, deep


def trained_for(config: LatentWireConfig, shapes: list[LMConfig]) -> list[Trained]:
    """Trainables of every model, drawn from torch's generator.

    All adapters are drawn before all options: they start alike with and without.
    """
    adapters = [Adapter(config.sizes.latent_width, shape.d_model) for shape in shapes]
    return [
        Trained(adapter, _lora(config, shape), DeepPrefix(shape) if config.deep_prefix else None)
        for adapter, shape in zip(adapters, shapes, strict=True)
    ]


def _lora(config: LatentWireConfig, shape: LMConfig) -> Lora | None:
    if config.lora_rank is None:
        return None
    return Lora(shape, config.lora_targets, config.lora_rank, config.lora_alpha, config.lora_layers)


def groups_of(encoder: LatentEncoder, trained: Sequence[Trained]) -> dict[str, list[nn.Parameter]]:
    """All trainables by group: encoder, then adapter0, lora0, deep0, adapter1 ..., where models have them."""
    found = {"encoder": list(encoder.parameters())}
    for number, one in enumerate(trained):
        found |= {f"{name}{number}": list(part.parameters()) for name, part in one.named_children()}
    return found
