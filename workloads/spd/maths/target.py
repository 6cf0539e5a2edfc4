"""The frozen networks: a GPT-2, a Llama-like model and toy models of superposition, all as a chain of stages.

Dimensions: B rows, S positions, d width, v vocabulary, f features of a toy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.layers import (
    ACTIVATIONS,
    Conv1D,
    RMSNorm,
    Rotary,
    TanhGelu,
    attend,
    split_heads,
)
from perfsweep.workloads.spd.presets import TargetSpec

Recompute = Callable[[nn.Module, Tensor], Tensor]


class Target(nn.Module):
    """A network as entry, stages and exit, so that a pass can begin at any stage.

    Attributes
    ----------
    stages : names of the sub-modules that follow one another
    prefix : what published checkpoints put before the names of modules
    """

    stages: tuple[str, ...] = ()
    prefix: str = ""

    def published(self) -> dict[str, Tensor]:
        """Values by the names that published checkpoints have."""
        return dict(self.state_dict())

    def enter(self, batch: Tensor) -> Tensor:
        """What the first stage reads."""
        return batch

    def leave(self, hidden: Tensor) -> Tensor:
        """The last hidden state before the head."""
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """The output."""
        return hidden

    def forward(
        self,
        batch: Tensor,
        first: int = 0,
        hidden: Tensor | None = None,
        between: list[Tensor] | None = None,
        run: Recompute | None = None,
    ) -> Tensor:
        """The output for `batch`.

        Parameters
        ----------
        first, hidden : begin at this stage, which reads `hidden`
        between : takes the input of each stage
        run : calls a stage, for recomputation in the backward pass
        """
        state = self.enter(batch) if hidden is None else hidden
        for name in self.stages[first:]:
            if between is not None:
                between.append(state)
            stage = self.get_submodule(name)
            state = run(stage, state) if run else stage(state)
        return self.head(self.leave(state))

    def stage_of(self, name: str) -> int | None:
        """Number of the stage that holds module `name`, None where it belongs to no stage."""
        return next(
            (i for i, stage in enumerate(self.stages) if name == stage or name.startswith(stage + ".")), None
        )


class _LlamaAttention(nn.Module):
    def __init__(self, spec: TargetSpec, fused: bool) -> None:
        super().__init__()
        size = spec.width // spec.heads
        self.heads, self.kv_heads = spec.heads, spec.kv_heads
        self.q = nn.Linear(spec.width, spec.width, bias=False)
        self.k = nn.Linear(spec.width, size * spec.kv_heads, bias=False)
        self.v = nn.Linear(spec.width, size * spec.kv_heads, bias=False)
        self.o = nn.Linear(spec.width, spec.width, bias=False)
        self.rotary = Rotary(size, spec.context, fused)

    def forward(self, x: Tensor) -> Tensor:
        query, key = split_heads(self.q(x), self.heads), split_heads(self.k(x), self.kv_heads)
        value = split_heads(self.v(x), self.kv_heads)
        query, key = self.rotary(query, key)
        return self.o(attend(query, key, value))


class _LlamaMlp(nn.Module):
    def __init__(self, spec: TargetSpec, fused: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(spec.width, spec.mlp, bias=False)
        self.activation = TanhGelu(fused)
        self.down = nn.Linear(spec.mlp, spec.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.fc(x)))


class _LlamaLayer(nn.Module):
    def __init__(self, spec: TargetSpec, fused: bool) -> None:
        super().__init__()
        self.norm1 = RMSNorm(spec.width, fused)
        self.attn = _LlamaAttention(spec, fused)
        self.norm2 = RMSNorm(spec.width, fused)
        self.mlp = _LlamaMlp(spec, fused)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attn(self.norm1(h))
        return h + self.mlp(self.norm2(h))


class Llama(Target):
    """RMS norms, rotary positions, GELU, fewer key than query heads, no biases."""

    def __init__(self, spec: TargetSpec, fused: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(spec.vocab, spec.width)
        self.layers = nn.ModuleList(_LlamaLayer(spec, fused) for _ in range(spec.layers))
        self.norm = RMSNorm(spec.width, fused)
        self.unembed = nn.Linear(spec.width, spec.vocab, bias=False)
        self.stages = tuple(f"layers.{i}" for i in range(spec.layers))

    def enter(self, batch: Tensor) -> Tensor:
        """[B, S] -> [B, S, d]"""
        return self.embed(batch)

    def leave(self, hidden: Tensor) -> Tensor:
        return self.norm(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """[B, S, d] -> [B, S, v]"""
        return self.unembed(hidden)


class _Gpt2Attention(nn.Module):
    def __init__(self, spec: TargetSpec, layer: int) -> None:
        super().__init__()
        self.heads = spec.heads
        scale = math.sqrt(spec.heads / spec.width) if spec.scaled else 1.0
        self.scale = scale / (layer + 1) if spec.scaled_by_layer else scale
        self.c_attn = Conv1D(spec.width, 3 * spec.width)
        self.c_proj = Conv1D(spec.width, spec.width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.c_attn(x).chunk(3, dim=-1))
        return self.c_proj(attend(query, key, value, self.scale))


class _Gpt2Mlp(nn.Module):
    def __init__(self, spec: TargetSpec, fused: bool) -> None:
        super().__init__()
        self.c_fc = Conv1D(spec.width, spec.mlp)
        self.act = ACTIVATIONS[spec.activation](fused)
        self.c_proj = Conv1D(spec.mlp, spec.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(self.act(self.c_fc(x)))


class _Gpt2Layer(nn.Module):
    def __init__(self, spec: TargetSpec, fused: bool, layer: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(spec.width, eps=spec.eps)
        self.attn = _Gpt2Attention(spec, layer)
        self.ln_2 = nn.LayerNorm(spec.width, eps=spec.eps)
        self.mlp = _Gpt2Mlp(spec, fused)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.attn(self.ln_1(h))
        return h + self.mlp(self.ln_2(h))


class Gpt2(Target):
    """GPT-2 with its published names: learned positions, biases, a head tied to the embedding or its own.

    Its specification's `activation` is the MLP's, `eps` the norms'; products of queries and keys are divided
    by the root of a head's width if `scaled`, and by the layer's number from 1 if `scaled_by_layer`.
    """

    prefix = "transformer."

    def published(self) -> dict[str, Tensor]:
        """Values as transformers has them: the head as a tensor of its own, even where it is tied."""
        own = {f"{self.prefix}{name}": value for name, value in self.state_dict().items()}
        head = own.pop(f"{self.prefix}lm_head.weight", self.wte.weight)
        return {**own, "lm_head.weight": head}

    def __init__(self, spec: TargetSpec, fused: bool = False) -> None:
        super().__init__()
        self.wte = nn.Embedding(spec.vocab, spec.width)
        self.wpe = nn.Embedding(spec.context, spec.width)
        self.h = nn.ModuleList(_Gpt2Layer(spec, fused, layer) for layer in range(spec.layers))
        self.ln_f = nn.LayerNorm(spec.width, eps=spec.eps)
        self.lm_head = None if spec.tied else nn.Linear(spec.width, spec.vocab, bias=False)
        self.stages = tuple(f"h.{i}" for i in range(spec.layers))

    def enter(self, batch: Tensor) -> Tensor:
        """[B, S] -> [B, S, d]"""
        return self.wte(batch) + self.wpe.weight[: batch.shape[-1]]

    def leave(self, hidden: Tensor) -> Tensor:
        return self.ln_f(hidden)

    def head(self, hidden: Tensor) -> Tensor:
        """[B, S, d] -> [B, S, v], tied by the table: decomposing the embedding module spares the head."""
        if self.lm_head is not None:
            return self.lm_head(hidden)
        return nn.functional.linear(hidden, self.wte.weight)


class Superposition(Target):
    """A toy model of superposition: f features through a bottleneck and back, [B, f] -> [B, f]."""

    stages = ("linear1", "linear2")

    def __init__(self, spec: TargetSpec) -> None:
        super().__init__()
        self.linear1 = nn.Linear(spec.features, spec.hidden, bias=False)
        self.linear2 = nn.Linear(spec.hidden, spec.features)
        # torch draws it from the generator of the whole process: the same toy would be another in each.
        nn.init.zeros_(self.linear2.bias)

    def head(self, hidden: Tensor) -> Tensor:
        return torch.relu(hidden)


def build(spec: TargetSpec, fused: bool = False) -> Target:
    """A network with empty or default values."""
    if spec.kind == "tms":
        return Superposition(spec)
    return Llama(spec, fused) if spec.kind == "llama" else Gpt2(spec, fused)


def draw_values(target: Target, seed: int, std: float = 0.08) -> None:
    """Fill matrices with normal numbers; norms and biases keep theirs."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in target.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, std, generator=generator)


def set_star(target: Superposition) -> None:
    """The known optimum of a toy with five features and two hidden units: columns on a regular star, [2, 5].

    The bias -cos 72 degrees silences the two neighbours of an active feature.
    """
    features = target.linear1.in_features
    angles = torch.arange(features, dtype=torch.float64) * (2 * math.pi / features)
    star = torch.stack([angles.cos(), angles.sin()])
    with torch.no_grad():
        target.linear1.weight.copy_(star)
        target.linear2.weight.copy_(star.T)
        target.linear2.bias.fill_(-math.cos(2 * math.pi / features))


Frozen = TypeVar("Frozen", bound=Target)


def freeze(target: Frozen) -> Frozen:
    """In evaluation mode and without gradients."""
    return target.eval().requires_grad_(False)
