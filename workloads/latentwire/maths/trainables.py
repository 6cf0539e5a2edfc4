"""All that is trained for one frozen model: its adapter and, if asked for, LoRA and a deep prefix.

Dimensions: B rows, M latents, d model width, g key heads, e head width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.maths.encoder import Adapter, LatentEncoder
from perfsweep.workloads.latentwire.maths.lora import Lora
from perfsweep.workloads.latentwire.presets import LMConfig


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
