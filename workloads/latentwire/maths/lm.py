"""A causal language model of the Llama and Qwen2 kind, frozen.

Dimensions: B rows, S positions, d model width, h query heads, g key heads, e head width, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfsweep.workloads.latentwire.maths.attention import Allowed, Attend, eager, loudness, rotate, rotations
from perfsweep.workloads.latentwire.maths.passes import (
    ALONE,
    AttentionContext,
    KeyValues,
    LayerContext,
    Rows,
    keys_in,
)
from perfsweep.workloads.latentwire.maths.trainables import Lora, adapted
from perfsweep.workloads.latentwire.presets import LMConfig

_TANH = functools.partial(F.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_new": _TANH,
    "gelu_pytorch_tanh": _TANH,
    "relu": F.relu,
}
"""Functions of a gated MLP's gate, under the names that models' configurations have for them."""

SYNONYMS = {"swish": "silu"}


class Weight(nn.Module):
    """A frozen matrix [out, in] with an optional bias, in whatever type it is stored."""

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]"""
        return F.linear(x, self.matrix, self.bias)


class Layer(nn.Module):
    """Weights of one layer."""

    def __init__(self, config: LMConfig, normal: Callable[..., Tensor]) -> None:
        super().__init__()
        wide, narrow = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
        d, small = config.d_model, 0.02 / math.sqrt(2 * config.n_layers)

        def weight(outputs: int, inputs: int, bias: bool, std: float = 0.02) -> Weight:
            matrix = normal(outputs, inputs, std=std)
            return Weight(matrix, normal(outputs, std=0.02) if bias else None)

        self.q = weight(wide, d, config.qkv_bias)
        self.k = weight(narrow, d, config.qkv_bias)
        self.v = weight(narrow, d, config.qkv_bias)
        self.o = weight(d, wide, config.o_bias, small)
        self.gate = weight(config.d_ff, d, config.mlp_bias)
        self.up = weight(config.d_ff, d, config.mlp_bias)
        self.down = weight(d, config.d_ff, config.mlp_bias, small)
        for name, width in config.norm_widths.items():
            ones = None if width is None else torch.ones(width, dtype=self.q.matrix.dtype)
            self.register_parameter(name, None if ones is None else nn.Parameter(ones, requires_grad=False))


@dataclass(frozen=True)
class LayerPath:
    """How a layer is computed.

    Attributes
    ----------
    attend : attention
    recompute : off, on or selective: what is computed again in the backward pass
    """

    attend: Attend
    recompute: str = "off"


@dataclass
class Path:
    """How passes are computed: chosen once.

    Attributes
    ----------
    layer : how each layer is
    block : the function for layers of passes that are trained through, compiled; None: as it is written
    sharded : layers are cut among ranks, and `block` gathers them in every pass
    """

    layer: LayerPath
    block: Callable[..., Any] | None = None
    sharded: bool = False
    counts: Counter[str] = field(default_factory=Counter)


class CausalLM(nn.Module):
    """Embedding table, layers, final norm and head.

    Weights are drawn from `generator`: std 0.02, output projections smaller by the root of twice the depth;
    the final norm is scaled so that logits have a standard deviation of about one.
    """

    def __init__(
        self, config: LMConfig, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.config = config
        device = generator.device if generator is not None else torch.get_default_device()

        def normal(*shape: int, std: float) -> Tensor:
            return (
                torch.empty(*shape, dtype=torch.float32, device=device)
                .normal_(std=std, generator=generator)
                .to(dtype)
            )

        self.table = nn.Parameter(normal(config.vocab_size, config.d_model, std=0.02), requires_grad=False)
        self.layers = nn.ModuleList(Layer(config, normal) for _ in range(config.n_layers))
        scale = 1 / (0.02 * math.sqrt(config.d_model))
        self.norm = nn.Parameter(
            torch.full((config.d_model,), scale, dtype=dtype, device=device), requires_grad=False
        )
        self.head = (
            None if config.tie_embeddings else Weight(normal(config.vocab_size, config.d_model, std=0.02))
        )
        self.to(device)
        self.path: Path | None = None
        self._turning = {False: (rotations(config), loudness(config))}
        if config.local_theta is not None:
            local = dataclasses.replace(config, rope_theta=config.local_theta, rope_scaling=None)
            self._turning[True] = (rotations(local), loudness(local))
        self._furthest = min(config.max_pos, 8192)
        self._tables: dict[tuple[bool, torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def embed(self, ids: Tensor) -> Tensor:
        """ids [..] -> [.., d]"""
        return F.embedding(ids, self.table)

    @property
    def chosen(self) -> Path:
        assert self.path is not None, "choose a path first"
        return self.path

    def rotation(self, start: int, length: int, like: Tensor, local: bool = False) -> tuple[Tensor, Tensor]:
        """Cosines and sines [S, e] of positions from `start` on; `local`: those of layers with a window."""
        key = (local, like.device, like.dtype)
        held = self._tables.get(key)
        if held is None or held[0].shape[0] < start + length:
            # Doubling keeps the number of tables small. Angles in float64, rounded once: far positions leave
            # float32 no digits for them.
            size = max(256, 1 << (start + length - 1).bit_length())
            speed, loud = self._turning[local]
            angles = torch.outer(torch.arange(size, dtype=torch.float64), speed)
            angles = torch.cat((angles, angles), dim=-1)
            turns = (angles.cos() * loud, angles.sin() * loud)
            held = turns[0].to(like.dtype).to(like.device), turns[1].to(like.dtype).to(like.device)
            self._tables[key] = held
        return held[0][start : start + length], held[1][start : start + length]

    def run(
        self,
        x: Tensor,
        context: AttentionContext = ALONE,
        *,
        rows: Rows | None = None,
        keep: KeyValues | None = None,
        states: list[Tensor] | None = None,
        lora: Lora | None = None,
    ) -> Tensor:
        """Embeddings [B, S, d] to normed hidden states [B, S, d], or [B, R, d] of `rows`.

        Parameters
        ----------
        rows : what the last layer is computed for; None: everything
        keep : takes every layer's keys and values, those of the context included
        states : takes the first layers' outputs, for comparison with another model's
        lora : additions to the matrices; None: the model as it is
        """
        past = context.past_key_values
        turns = {local: self._turns(context, x, local) for local in self._turning}
        self.chosen.counts["lm_positions"] += x.shape[0] * x.shape[1]
        for number, layer in enumerate(self.layers):
            last = rows if number == len(self.layers) - 1 else None
            place = next(layer.parameters()).device
            if place != x.device:  # the next device's layers begin here
                x = x.to(place)
                turns = {local: (cos.to(place), sin.to(place)) for local, (cos, sin) in turns.items()}
            asked = None if last is None else last.positions
            window = self.config.window_of(number)
            allowed = context.allowed(x.shape[1], x.device, asked, window)
            held = past[number] if past is not None else None
            self._count_layer(x, last)
            local = window is not None and True in turns
            own = None if number in self.config.unturned else turns[local]
            added = None if lora is None else lora.of(number)
            x, kv = self._layer(layer, x, LayerContext(own, allowed, held, last, added))
            if keep is not None:
                keep.append(kv)
            # State distillation compares the first three layers.
            if states is not None and number < 3:
                states.append(x)
        return self.final_norm(x.to(self.norm.device))

    def _turns(self, context: AttentionContext, x: Tensor, local: bool) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the tokens x [B, S, d]: [S, e] or [B, S, e]"""
        if context.position_ids is None:
            return self.rotation(keys_in(context.past_key_values), x.shape[1], x, local)
        cos, sin = self.rotation(0, self._furthest, x, local)
        return cos[context.position_ids], sin[context.position_ids]

    def _layer(self, layer: nn.Module, x: Tensor, context: LayerContext) -> Any:
        path = self.chosen
        block = path.block if path.block is not None and (x.requires_grad or path.sharded) else run_layer
        arguments = (path.layer, self.config, layer, x, context)
        if path.layer.recompute == "on" and torch.is_grad_enabled():
            return checkpoint(block, *arguments, use_reentrant=False, preserve_rng_state=False)
        return block(*arguments)

    def final_norm(self, x: Tensor) -> Tensor:
        """x [.., d] -> [.., d]"""
        return rms_norm(x, self.norm, self.config.rms_eps)

    @property
    def head_matrix(self) -> Tensor:
        """[V, d]"""
        return self.table if self.head is None else self.head.matrix

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [.., d] -> [.., V], at least in single precision"""
        rows = hidden.numel() // hidden.shape[-1]
        self._count_head(rows, hidden)
        out = F.linear(hidden, self.head_matrix)
        out = out.float() if out.dtype in (torch.bfloat16, torch.float16) else out
        cap = self.config.logit_cap
        return out if cap is None else cap * torch.tanh(out / cap)

    def _count_head(self, rows: int, hidden: Tensor) -> None:
        counts = self.chosen.counts
        passes = (6 if self.table.requires_grad else 4) if hidden.requires_grad else 2
        counts["head_rows"] += rows
        counts["lm_flops"] += passes * rows * self.config.head_parameters

    def _count_layer(self, x: Tensor, rows: Rows | None) -> None:
        """Products of a layer: 2 per weight and position forward, as many backward, recomputed ones again."""
        config, tokens = self.config, x.shape[0] * x.shape[1]
        products = tokens * (config.attention_parameters + config.mlp_parameters)
        if rows is not None:
            read = (
                rows.positions.shape[1]
                if isinstance(rows.positions, Tensor)
                else len(range(x.shape[1])[rows.positions])
            )
            products -= x.shape[0] * (x.shape[1] - read) * config.pruned_parameters
        trained = x.requires_grad and torch.is_grad_enabled()
        again = 2 * (self.chosen.layer.recompute == "on") + 2 * self.table.requires_grad
        self.chosen.counts["lm_flops"] += (4 + again if trained else 2) * products
        self.chosen.counts["attention_kernels"] += (
            self.chosen.layer.attend is not eager and config.score_cap is None
        )

    def stored_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(p.numel() * p.element_size() for p in [*self.parameters(), *self.buffers()])


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x [.., d] normed, statistics at least in single precision; as it is where a layer has no such norm."""
    if weight is None:
        return x
    wide = x if x.dtype == torch.float64 else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


def run_layer(
    path: LayerPath, config: LMConfig, layer: Any, x: Tensor, context: LayerContext
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer: x [B, S, d] -> [B, S or R, d], and keys and values [B, g, T, e] with those before."""
    if context.lora is not None:
        layer = adapted(layer, context.lora)
    q, k, v = _queries_keys_values(layer, config, rms_norm(x, layer.norm1, config.rms_eps), context)
    if context.past_key_value is not None:
        k, v = (_after(old, new) for old, new in zip(context.past_key_value, (k, v), strict=True))
    mixed = layer.o(_attended(path, config, q, k, v, context.allowed))
    x = x if context.rows is None else context.rows.of(x)
    x = x + rms_norm(mixed, layer.after1, config.rms_eps)
    if path.recompute == "selective" and torch.is_grad_enabled():
        y = checkpoint(_mlp, config, layer, x, use_reentrant=False, preserve_rng_state=False)
    else:
        y = _mlp(config, layer, x)
    return x + y, (k, v)


def _attended(path: LayerPath, config: LMConfig, q: Tensor, k: Tensor, v: Tensor, allowed: Allowed) -> Tensor:
    """[B, S, h * e]; no fused kernel caps scores, so that the explicit matrix does where they are capped."""
    if config.query_scale != 1:
        q = q * config.query_scale
    if config.score_cap is None:
        return path.attend(q, k, v, allowed)
    return eager(q, k, v, allowed, config.score_cap)


def _after(past: Tensor, new: Tensor) -> Tensor:
    """Keys or values [B, g, S, e] after `past` [1 or B, g, T, e], which may have another type or device."""
    return torch.cat((past.to(new).expand(new.shape[0], -1, -1, -1), new), dim=2)


def _mlp(config: LMConfig, layer: Any, x: Tensor) -> Tensor:
    normed = rms_norm(x, layer.norm2, config.rms_eps)
    gated = ACTIVATIONS[config.activation](layer.gate(normed)) * layer.up(normed)
    return rms_norm(layer.down(gated), layer.after2, config.rms_eps)


def _queries_keys_values(
    layer: Any, config: LMConfig, x: Tensor, context: LayerContext
) -> tuple[Tensor, Tensor, Tensor]:
    def heads(y: Tensor, weight: Tensor | None = None) -> Tensor:
        if weight is not None:
            y = rms_norm(y.unflatten(-1, (-1, len(weight))), weight, config.rms_eps).flatten(-2)
        return y.view(y.shape[0], y.shape[1], -1, config.head_dim).transpose(1, 2)

    rows = context.rows
    asked = x if rows is None else rows.of(x)
    q, k, v = heads(layer.q(asked), layer.q_norm), heads(layer.k(x), layer.k_norm), heads(layer.v(x))
    if context.position_embeddings is None:
        return q, k, v
    cos, sin = context.position_embeddings
    return rotate(q, *_turns_of(rows, cos, sin)), rotate(k, _by_head(cos), _by_head(sin)), v


def _by_head(turns: Tensor) -> Tensor:
    """[S, e] as it is, [B, S, e] -> [B, 1, S, e]"""
    return turns if turns.dim() == 2 else turns.unsqueeze(1)


def _turns_of(rows: Rows | None, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the queries: [S, e], or [B, 1, R, e] where each row is asked elsewhere."""
    if rows is None:
        return _by_head(cos), _by_head(sin)
    if isinstance(rows.positions, slice):
        return cos[rows.positions], sin[rows.positions]
    return cos[rows.positions].unsqueeze(1), sin[rows.positions].unsqueeze(1)
