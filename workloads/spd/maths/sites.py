"""Which modules are decomposed, how each of them reads its input, and tensors of several of them.

A site is one decomposed module: W [out, in], b [out] or none, C subcomponents. Its kind only says where W is
stored and how an input meets it; everything else treats all sites alike.

Tensors of several sites are in stacks, keyed by the names of their sites. One site: the tensor as it is;
more: a leading dimension K, one entry each. Elementwise code works on either form, so that stacking changes
how many operations run and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.layers import Conv1D
from perfsweep.workloads.spd.maths.target import Target


@dataclass(frozen=True)
class Site:
    """One decomposed module.

    Attributes
    ----------
    name : in the target
    kind : linear (W stored [out, in]), conv1d ([in, out]), embedding ([in, out], rows are gathered) or
        identity (W = 1)
    d_in, d_out : of W
    count : subcomponents C
    stage : stage of the target that holds it, None where it is before the first
    """

    name: str
    kind: str
    d_in: int
    d_out: int
    count: int
    stage: int | None

    @property
    def key(self) -> str:
        """The name as a key of a ModuleDict, which takes no dots."""
        return self.name.replace(".", "-")

    def positions(self, x: Tensor) -> torch.Size:
        """Leading dimensions of an input: all of it for token ids, all but the last for vectors."""
        return x.shape if self.kind == "embedding" else x.shape[:-1]

    def read(self, x: Tensor, matrix: Tensor) -> Tensor:
        """x times a matrix [in, n]; token ids pick rows."""
        return F.embedding(x, matrix) if self.kind == "embedding" else x @ matrix

    def base(self, x: Tensor, leaf: nn.Module) -> Tensor:
        """y = x W^T without bias."""
        if self.kind == "identity":
            return x
        weight: Tensor = leaf.weight  # type: ignore[assignment]
        return F.linear(x, weight) if self.kind == "linear" else self.read(x, weight)


def bias_of(leaf: nn.Module) -> Tensor | None:
    """b [out], if the module has one."""
    return getattr(leaf, "bias", None)


def weight_of(module: nn.Module, kind: str, width: int) -> Tensor:
    """W [out, in] of a module; of an identity, one of `width` that is made for the occasion."""
    if kind == "identity":
        return torch.eye(width)
    weight: Tensor = module.weight  # type: ignore[assignment]
    return weight if kind == "linear" else weight.T


def find_sites(
    target: Target, patterns: Sequence[tuple[str, int]], identity_width: int = 0
) -> tuple[Site, ...]:
    """The modules that the patterns name, in the order of patterns and, within one, of the network.

    Raises
    ------
    ConfigError
        A pattern names nothing that can be decomposed, a module is named twice, or C is not positive.
    """
    sites: dict[str, Site] = {}
    leaves = {name: leaf for name, leaf in target.named_modules() if name and _kind(leaf)}
    for pattern, count in patterns:
        for name in _matches(leaves, pattern, count):
            if name in sites:
                raise ConfigError(
                    f"workload.modules: {name} is matched twice, the second time by {pattern!r}; narrow one"
                    " pattern"
                )
            sites[name] = _site(target, name, leaves[name], count, identity_width)
    return tuple(sites.values())


def _matches(leaves: Mapping[str, nn.Module], pattern: str, count: int) -> list[str]:
    if count < 1:
        raise ConfigError(
            f"workload.components={count} of pattern {pattern!r} cannot be used: C must be a whole number"
            " from 1"
        )
    names = [name for name in leaves if fnmatchcase(name, pattern)]
    if not names:
        known = ", ".join(list(leaves)[:8])
        raise ConfigError(
            f"workload.modules: pattern {pattern!r} matches no module that can be decomposed; modules"
            f" are: {known} ..."
        )
    return names


def _site(target: Target, name: str, leaf: nn.Module, count: int, identity_width: int) -> Site:
    kind = _kind(leaf)
    assert kind is not None
    _refuse_unlike(name, leaf, kind)
    if kind == "identity" and not identity_width:
        raise ConfigError(
            f"workload.modules: {name} is an Identity, whose width is unknown; leave it out of the patterns"
        )
    d_out, d_in = weight_of(leaf, kind, identity_width).shape
    return Site(name, kind, d_in, d_out, count, target.stage_of(name))


KINDS: dict[type[nn.Module], str] = {
    nn.Linear: "linear",
    Conv1D: "conv1d",
    nn.Embedding: "embedding",
    nn.Identity: "identity",
}


def _kind(leaf: nn.Module) -> str | None:
    if type(leaf).__name__ == "Conv1D" and hasattr(leaf, "nf"):
        return "conv1d"  # of transformers, which is no dependency
    return next((kind for cls, kind in KINDS.items() if isinstance(leaf, cls)), None)


def _refuse_unlike(name: str, leaf: nn.Module, kind: str) -> None:
    """Refuse a module that computes something else than its class does."""
    base = next((cls for cls in KINDS if isinstance(leaf, cls)), None)
    if base is not None and type(leaf).forward is not base.forward:
        raise ConfigError(
            f"workload.modules: {name} is a {type(leaf).__name__} with a forward of its own, not that of"
            f" {base.__name__}; leave it out"
        )
    if kind == "embedding" and getattr(leaf, "max_norm", None) is not None:
        raise ConfigError(
            f"workload.modules: {name} is an embedding with max_norm, which changes its weights when it is"
            " read; leave it out"
        )


Names = tuple[str, ...]
Stacks = dict[Names, Tensor]


def one_by_one(sites: Sequence[Site]) -> tuple[Names, ...]:
    """Every module for itself."""
    return tuple((site.name,) for site in sites)


def by_width(sites: Sequence[Site]) -> tuple[Names, ...]:
    """Modules with equally many subcomponents; token ids apart, whose positions have another rank."""
    groups: dict[int, list[str]] = {}
    for site in sites:
        groups.setdefault(site.count, []).append(site.name)
    return tuple(tuple(names) for names in groups.values())


def unstack(stacks: Mapping[Names, Tensor]) -> dict[str, Tensor]:
    """One tensor for each module by unbinding, one node for all; indexing would fill zeros for each."""
    found: dict[str, Tensor] = {}
    for names, tensor in stacks.items():
        found |= {names[0]: tensor} if len(names) == 1 else dict(zip(names, tensor.unbind(0), strict=True))
    return found


def stack(tensors: Mapping[str, Tensor], groups: Sequence[Names]) -> Stacks:
    """Tensors of modules, put together by group."""
    return {
        names: tensors[names[0]] if len(names) == 1 else torch.stack([tensors[name] for name in names])
        for names in groups
    }


def each(function: Callable[..., Tensor], *stacks: Mapping[Names, Tensor]) -> Stacks:
    """`function` of the tensors at the same names."""
    return {names: function(*(other[names] for other in stacks)) for names in stacks[0]}


def alone(stacks: Mapping[Names, Any]) -> dict[Names, Any]:
    """What groups hold, tensors or tuples of tensors and numbers, every module for itself."""
    return {
        (name,): part
        for names, held in stacks.items()
        for name, part in zip(names, _parts(held, len(names)), strict=True)
    }


def together(single: Mapping[Names, Any], groups: Sequence[Names]) -> dict[Names, Any]:
    """What `alone` gives, by other groups."""
    return {names: _whole([single[name,] for name in names]) for names in groups if (names[0],) in single}


def _parts(held: Any, count: int) -> Sequence[Any]:
    if count == 1:
        return [held]
    if isinstance(held, tuple):
        return list(zip(*(_parts(one, count) for one in held), strict=True))
    return held.unbind(0) if isinstance(held, Tensor) else [held] * count


def _whole(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, tuple):
        return tuple(_whole(column) for column in zip(*parts, strict=True))
    return torch.stack(list(parts)) if isinstance(first, Tensor) else first


def slots(stacks: Mapping[Names, Tensor]) -> dict[str, Tensor]:
    """Views into each module's part, to write into."""
    return {
        name: tensor if len(names) == 1 else tensor[k]
        for names, tensor in stacks.items()
        for k, name in enumerate(names)
    }


@dataclass
class Operands:
    """What a masked pass multiplies with at one site.

    Attributes
    ----------
    V, U : [in, C] and [C, out]
    delta : D = W - (V U)^T [out, in], None where it is folded into the sum or not wanted
    """

    V: Tensor
    U: Tensor
    delta: Tensor | None = None

    def detached(self) -> Operands:
        """The same values without a graph."""
        return Operands(self.V.detach(), self.U.detach(), None if self.delta is None else self.delta.detach())


class Components(nn.Module):
    """V and U of one site, float32, normal with std 1/sqrt(fan)."""

    def __init__(self, site: Site, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.V = nn.Parameter(normal((site.d_in, site.count), site.d_in, generator, dtype))
        self.U = nn.Parameter(normal((site.count, site.d_out), site.count, generator, dtype))

    @property
    def weight(self) -> Tensor:
        """(V U)^T [out, in]"""
        return (self.V @ self.U).T


def normal(
    shape: Sequence[int], fan: int, generator: torch.Generator, dtype: torch.dtype, gain: float = 1.0
) -> Tensor:
    """Normal numbers with std gain/sqrt(fan), drawn on the host so that every device starts alike."""
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * (gain / math.sqrt(fan))).to(dtype)
