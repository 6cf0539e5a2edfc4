"""Causal-importance functions: from what a module reads to one pre-sigmoid number g for each subcomponent.

Three kinds, each module by module or stacked: `mlp` sees one component's activation, `vector_mlp` the
module's input through a network for each component, `shared_mlp` the input through one network for all.

A fourth is one function for all modules: a transformer over positions, of what every module reads. Inputs are
brought to a root mean square of 1, joined in the order of the modules' names and projected to the stream.
Blocks add attention to it, in both directions and with rotary positions (Su et al. 2021), and an MLP, each of
the normalised stream; the head gives g of all subcomponents. It is upstream's global_shared_transformer.

Dimensions: K modules of a stack, ... positions, i and o features of a layer, h hidden features, C
subcomponents; B rows, S positions, d width of the stream, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.layers import Rotary, attend, split_heads
from perfsweep.workloads.spd.maths.sites import Names, Site, Stacks, normal, stack
from perfsweep.workloads.spd.specs import TransformerSpec

READS_ACTIVATIONS = frozenset({"mlp"})


class ImportanceFn(nn.Module):
    """g [..., C] of one module.

    Attributes
    ----------
    kind : mlp, vector_mlp or shared_mlp. An attribute, not a class: compiled modules have a class of their
        own, and the field report's recipe, which dispatches on classes, raises a ValueError on them.
    weights, biases : per layer; [C, i, o] and [C, o] for mlp, [i, o] and [o] for shared_mlp, and for
        vector_mlp a first layer [in, C*h] in one product and [C, i, o] after it
    """

    def __init__(
        self,
        site: Site,
        kind: str,
        hidden: Sequence[int],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        _refuse_ids(site, kind)
        self.kind = kind
        self.count = site.count
        shapes = layer_shapes(kind, site, hidden)
        # Variance is kept through the activations (He et al. 2015); the last layer has none.
        gains = [math.sqrt(2.0)] * (len(shapes) - 1) + [1.0]
        self.weights = nn.ParameterList(
            nn.Parameter(normal(weight, fan, generator, dtype, gain))
            for (weight, _, fan), gain in zip(shapes, gains, strict=True)
        )
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(*bias, dtype=dtype)) for _, bias, _ in shapes)

    def forward(self, x: Tensor) -> Tensor:
        """g [..., C] of an input [..., in], or of activations [..., C] for mlp."""
        return FORWARD[self.kind](x, list(self.weights), list(self.biases), self.count)


def layer_shapes(
    kind: str, site: Site, hidden: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
    """Weight shape, bias shape and fan of each layer."""
    C = site.count
    if kind == "shared_mlp":
        sizes = [site.d_in, *hidden, C]
        return [((i, o), (o,), i) for i, o in pairwise(sizes)]
    sizes = [1 if kind == "mlp" else site.d_in, *hidden, 1]
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        ((C, i, o), (C, o), i) for i, o in pairwise(sizes)
    ]
    # All components read the same input: their first layers are one product.
    if kind == "vector_mlp":
        shapes[0] = ((site.d_in, C * sizes[1]), (C, sizes[1]), site.d_in)
    return shapes


def _per_component(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Layers [C, i, o] on [..., C, i]; ends as [..., C]."""
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = torch.einsum("...ci,cio->...co", h, weight) + bias
        if layer < len(weights) - 1:
            h = F.gelu(h)
    return h.squeeze(-1)


def _mlp(a: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], count: int) -> Tensor:
    return _per_component(a.unsqueeze(-1), weights, biases)


def _vector_mlp(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], count: int) -> Tensor:
    h = F.gelu((x @ weights[0]).unflatten(-1, (count, -1)) + biases[0])
    return _per_component(h, weights[1:], biases[1:])


def _shared_mlp(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], count: int) -> Tensor:
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = x @ weight + bias
        if layer < len(weights) - 1:
            x = F.gelu(x)
    return x


Form = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor], int], Tensor]
FORWARD: dict[str, Form] = {"mlp": _mlp, "vector_mlp": _vector_mlp, "shared_mlp": _shared_mlp}


def _stacked_layers(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Layers [K, i, o] on [K, T, i]."""
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = torch.baddbmm(bias.unsqueeze(1), h, weight)
        if layer < len(weights) - 1:
            h = F.gelu(h)
    return h


def _refuse_ids(site: Site, kind: str) -> None:
    if site.kind == "embedding" and kind != "mlp":
        raise ConfigError(
            f"workload.importance={kind} cannot read token ids: {site.name} is an embedding and takes"
            " only mlp"
        )


def _stacked_components(h: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Layers [K, C, i, o] on [K, T, C, i]; ends as [K, T, C]: the last is a weighted sum, no matmul."""
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        h = F.gelu(torch.einsum("ktci,kcio->ktco", h, weight) + bias.unsqueeze(1))
    return (h * weights[-1].squeeze(-1).unsqueeze(1)).sum(-1) + biases[-1].squeeze(-1).unsqueeze(1)


def _stacked_mlp(a: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], count: int) -> Tensor:
    # One input feature: the first layer is an outer product.
    h = F.gelu(a.unsqueeze(-1) * weights[0].squeeze(-2).unsqueeze(1) + biases[0].unsqueeze(1))
    return _stacked_components(h, weights[1:], biases[1:])


def _stacked_vector_mlp(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], count: int) -> Tensor:
    h = F.gelu(torch.bmm(x, weights[0]).unflatten(-1, (count, -1)) + biases[0].unsqueeze(1))
    return _stacked_components(h, weights[1:], biases[1:])


STACKED: dict[str, Form] = {
    "mlp": _stacked_mlp,
    "vector_mlp": _stacked_vector_mlp,
    "shared_mlp": lambda x, weights, biases, count: _stacked_layers(x, weights, biases),
}


class StackedImportanceFn(nn.Module):
    """g [K, T, C] of several modules of one shape, whose values are those of `functions`."""

    def __init__(self, names: Names, functions: Sequence[ImportanceFn]) -> None:
        super().__init__()
        first = functions[0]
        self.names, self.kind, self.count = names, first.kind, first.count
        layers = range(len(first.weights))
        self.weights = nn.ParameterList(
            nn.Parameter(torch.stack([function.weights[layer].detach() for function in functions]))
            for layer in layers
        )
        self.biases = nn.ParameterList(
            nn.Parameter(torch.stack([function.biases[layer].detach() for function in functions]))
            for layer in layers
        )

    def forward(self, x: Tensor) -> Tensor:
        """g [K, T, C] of inputs [K, T, in], or of activations [K, T, C] for mlp."""
        return STACKED[self.kind](x, list(self.weights), list(self.biases), self.count)


Call = Callable[[Tensor], Tensor]


class ImportanceSet(nn.Module):
    """The importance functions of all modules."""

    def __init__(
        self,
        sites: Sequence[Site],
        kind: str,
        hidden: Sequence[int],
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.sites = tuple(sites)
        self.kind = kind
        self.functions = nn.ModuleDict(
            {site.key: ImportanceFn(site, kind, hidden, generator, dtype) for site in sites}
        )

    def forward(self, inputs: Mapping[str, Tensor]) -> Stacks:
        """g by module: of inputs, or of activations for mlp."""
        return {(site.name,): self.functions[site.key](inputs[site.name]) for site in self.sites}

    def named_tensors(self) -> dict[str, Tensor]:
        """Every parameter under the name it has whether stacked or not."""
        return {
            f"importance.{key}.{part}.{layer}": parameter
            for key, function in self.functions.items()
            for part in ("weights", "biases")
            for layer, parameter in enumerate(getattr(function, part))
        }


class StackedImportanceSet(nn.Module):
    """The same functions, joined where of one shape; results joined by number of subcomponents."""

    def __init__(self, single: ImportanceSet, groups: Sequence[Names]) -> None:
        super().__init__()
        self.kind, self.groups = single.kind, tuple(groups)
        self.stacks = nn.ModuleList()
        shapes: dict[tuple[object, ...], list[Site]] = {}
        for site in single.sites:
            width = site.count if single.kind in READS_ACTIVATIONS else site.d_in
            shapes.setdefault((width, site.count), []).append(site)
        for sites in shapes.values():
            functions = [single.functions[site.key] for site in sites]
            self.stacks.append(StackedImportanceFn(tuple(site.name for site in sites), functions))  # type: ignore[arg-type]

    def forward(self, inputs: Mapping[str, Tensor]) -> Stacks:
        """g by group [K, ..., C]."""
        found: dict[str, Tensor] = {}
        lead = torch.Size()
        for function in self.stacks:
            names: Names = function.names  # type: ignore[assignment]
            lead = inputs[names[0]].shape[:-1]
            g = function(torch.stack([inputs[name] for name in names]).flatten(1, -2))
            found |= dict(zip(names, g.unbind(0), strict=True))
        return {names: self._together([found[name] for name in names], lead) for names in self.groups}

    @staticmethod
    def _together(parts: Sequence[Tensor], lead: torch.Size) -> Tensor:
        if len(parts) == 1:
            return parts[0].unflatten(0, lead)
        return torch.stack(list(parts)).unflatten(1, lead)

    def named_tensors(self) -> dict[str, Tensor]:
        """Every parameter, as a view into its stack, under the name it has in `ImportanceSet`."""
        return {
            f"importance.{name.replace('.', '-')}.{part}.{layer}": parameter[k]
            for function in self.stacks
            for k, name in enumerate(function.names)  # type: ignore[arg-type]
            for part in ("weights", "biases")
            for layer, parameter in enumerate(getattr(function, part))
        }


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
