"""One importance function for all modules: a transformer over positions, of what every module reads.

Inputs are brought to a root mean square of 1, joined in the order of the modules' names and projected to the
stream. Blocks add attention to it, in both directions and with rotary positions (Su et al. 2021), and an MLP,
each of the normalised stream; the head gives g of all subcomponents. It is upstream's
global_shared_transformer.

Dimensions: B rows, S positions, d width of the stream, H heads, C subcomponents of a module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.spd.maths.components import normal
from perfsweep.workloads.spd.maths.layers import Rotary, attend, split_heads
from perfsweep.workloads.spd.maths.sites import Names, Site, Stacks, stack
from perfsweep.workloads.spd.specs import TransformerSpec


def normalised(x: Tensor) -> Tensor:
    """x at a root mean square of 1 over the last dimension."""
    return F.rms_norm(x, x.shape[-1:])


class Dense(nn.Module):
    """x W + b; W [in, out] is normal with std gain/sqrt(in)."""

    def __init__(
        self, sizes: tuple[int, int], gain: float, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.W = nn.Parameter(normal(sizes, sizes[0], generator, dtype, gain))
        self.b = nn.Parameter(torch.zeros(sizes[1], dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W + self.b


class Attention(nn.Module):
    """Attention in both directions; q, k, v and out [d, d] begin uniform within 1/sqrt(d)."""

    def __init__(self, spec: TransformerSpec, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads, bound = spec.heads, 1 / math.sqrt(spec.width)

        def drawn() -> nn.Parameter:
            shares = torch.rand(spec.width, spec.width, generator=generator, dtype=torch.float64)
            return nn.Parameter(((2 * shares - 1) * bound).to(dtype))

        self.q, self.k, self.v, self.out = drawn(), drawn(), drawn(), drawn()
        self.rotary = Rotary(spec.width // spec.heads, spec.context, fused=True, base=spec.base)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            split_heads(F.linear(x, weight), self.heads) for weight in (self.q, self.k, self.v)
        )
        query, key = self.rotary(query, key)
        return F.linear(attend(query, key, value, causal=False), self.out)


class Block(nn.Module):
    """x + attention, then + MLP with exact GELUs, both of the normalised stream [B, S, d]."""

    def __init__(
        self, spec: TransformerSpec, hidden: Sequence[int], generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.attention = Attention(spec, generator, dtype)
        sizes = list(pairwise([spec.width, *hidden, spec.width]))
        gains = [math.sqrt(2.0)] * len(hidden) + [1.0]
        self.layers = nn.ModuleList(
            Dense(size, gain, generator, dtype) for size, gain in zip(sizes, gains, strict=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(normalised(x))
        h = normalised(x)
        for number, layer in enumerate(self.layers):
            h = layer(F.gelu(h) if number else h)
        return x + h


class TransformerImportance(nn.Module):
    """g of all modules.

    Parameters
    ----------
    hidden : widths of each block's MLP
    groups : modules whose g are one tensor
    """

    kind = "global_shared_transformer"

    def __init__(
        self,
        sites: Sequence[Site],
        spec: TransformerSpec,
        hidden: Sequence[int],
        groups: Sequence[Names],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.groups = tuple(groups)
        ordered = sorted(sites, key=lambda site: site.name)
        self.counts = {site.name: site.count for site in ordered}
        read = sum(width_read(site) for site in ordered)
        self.input = Dense((read, spec.width), math.sqrt(2.0), generator, dtype)
        self.blocks = nn.ModuleList(Block(spec, hidden, generator, dtype) for _ in range(spec.blocks))
        self.head = Dense((spec.width, sum(self.counts.values())), 1.0, generator, dtype)

    def forward(self, inputs: Mapping[str, Tensor]) -> Stacks:
        """g by group [K, ..., C] of what modules read [..., in]; of an embedding, its activations [..., C].

        Vectors [B, f] are rows of one position each.
        """
        x = self.input(torch.cat([normalised(inputs[name]) for name in self.counts], -1))
        stream = x.unsqueeze(-2) if x.dim() < 3 else x
        for block in self.blocks:
            stream = block(stream)
        g = self.head(stream.view(x.shape)).split(list(self.counts.values()), -1)
        return stack(dict(zip(self.counts, g, strict=True)), self.groups)

    @property
    def frequencies(self) -> Tensor:
        """Of the rotary positions [d / 2H]."""
        return self.blocks[0].attention.rotary.frequencies  # type: ignore[union-attr, return-value]

    def named_tensors(self) -> dict[str, Tensor]:
        """Every parameter by its name, which no toggle changes."""
        return {f"importance.{name}": parameter for name, parameter in self.named_parameters()}


def width_read(site: Site) -> int:
    """Features that are read of a module: its input's, or of token ids the activations of its components."""
    return site.count if site.kind == "embedding" else site.d_in


def products_of(sites: Sequence[Site], spec: TransformerSpec, hidden: Sequence[int], positions: int) -> int:
    """Multiply-adds of one position."""
    d, mlp = spec.width, sum(i * o for i, o in pairwise([spec.width, *hidden, spec.width]))
    ends = sum(width_read(site) + site.count for site in sites) * d
    return ends + spec.blocks * (4 * d * d + 2 * positions * d + mlp)
