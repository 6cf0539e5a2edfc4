"""Tensors of several modules, one by one or stacked, behind one type.

A stack is keyed by the names of its modules. One module: the tensor as it is; more: a leading dimension K,
one entry each. Elementwise code works on stacks of either form, so that stacking changes how many operations
run and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from workloads.spd.maths.sites import Site

Names = tuple[str, ...]
Stacks = dict[Names, Tensor]


def one_by_one(sites: Sequence[Site]) -> tuple[Names, ...]:
    """Every module for itself."""
    return tuple((site.name,) for site in sites)


def by_width(sites: Sequence[Site]) -> tuple[Names, ...]:
    """Modules with equally many subcomponents together; token ids stay apart, their positions have another
    rank."""
    groups: dict[int, list[str]] = {}
    for site in sites:
        groups.setdefault(site.count, []).append(site.name)
    return tuple(tuple(names) for names in groups.values())


def unstack(stacks: Mapping[Names, Tensor]) -> dict[str, Tensor]:
    """One tensor for each module. Unbinding is one node of the graph for all; indexing would fill a zero
    tensor for each."""
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
    """`function` of the tensors that stand at the same names."""
    return {names: function(*(other[names] for other in stacks)) for names in stacks[0]}


def slots(stacks: Mapping[Names, Tensor]) -> dict[str, Tensor]:
    """Views into each module's part, to write into."""
    return {
        name: tensor if len(names) == 1 else tensor[k]
        for names, tensor in stacks.items()
        for k, name in enumerate(names)
    }
