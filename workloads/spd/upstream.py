"""Parameters by the names that the upstream project, goodfire-ai/spd, has for them, in both directions.

Names, fields and arithmetic are those of its commit `COMMIT`, on its branch dev of 27 February 2026.

==========================  ===============================  =================================================
here                        upstream                         shape
==========================  ===============================  =================================================
``components.X.V``          ``_components.X.V``              [in, C]
``components.X.U``          ``_components.X.U``              [C, out]
``importance.X.weights.i``  ``_ci_fns.X.layers.{2i}.W``      as in `ImportanceFn`, but for the first layer of
                                                             vector_mlp, which is [C, in, h] upstream
``importance.X.biases.i``   ``_ci_fns.X.layers.{2i}.b``      as in `ImportanceFn`
==========================  ===============================  =================================================

The transformer of all modules is ``ci_fn._global_ci_fn`` there: ``importance.input.W`` is its
``_input_projector.W``, ``importance.head.W`` its ``_output_head.W``, ``importance.blocks.N.attention.q`` its
``_blocks.N.attn.q_proj.weight``, and ``importance.blocks.N.layers.i.W`` its ``_blocks.N.mlp.{2i}.W``.

X is a module's name with dashes for dots. A whole upstream checkpoint also holds the frozen network, as
``target_model.NAME`` and, where a decomposed module has a bias, ``_components.X.bias``: exported ones have
them, and imported ones must agree with the network at hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.sites import Site, bias_of
from perfsweep.workloads.spd.maths.target import Target

COMMIT = "2ab728c04940a71ee34948733e0c10e322367509"
_HERE = re.compile(r"importance\.([^.]+)\.(weights|biases)\.(\d+)")
_THERE = re.compile(r"(?:ci_fn\.)?_ci_fns\.([^.]+)\.layers\.(\d+)\.([Wb])")
_ENDS = {"input": "_input_projector", "head": "_output_head"}
_HERE_GLOBAL = re.compile(
    r"importance\.(?:(?P<end>input|head)\.(?P<e>[Wb])|blocks\.(?P<n>\d+)\."
    r"(?:attention\.(?P<a>\w+)|layers\.(?P<i>\d+)\.(?P<m>[Wb])))"
)
_GLOBAL = "ci_fn._global_ci_fn."
_THERE_GLOBAL = re.compile(
    r"(?:_(?P<end>input|output)_(?:projector|head)\.(?P<e>[Wb])|_blocks\.(?P<n>\d+)\."
    r"(?:attn\.(?P<a>\w+)_proj\.weight|mlp\.(?P<i>\d+)\.(?P<m>[Wb])))"
)
_FREQUENCIES = "attn.rope.inv_freq"
_PAIR = re.compile(r"_components\.([^.]+)\.([VU])")
OF_TARGET = "target_model."
_BIAS = re.compile(r"_components\.[^.]+\.bias")


def exported(
    tensors: Mapping[str, Tensor],
    target: Target | None = None,
    sites: Sequence[Site] = (),
    frequencies: Tensor | None = None,
) -> dict[str, Tensor]:
    """A decomposition's tensors by upstream's names.

    Parameters
    ----------
    tensors : by their names here, as a kept decomposition.safetensors holds them
    target, sites : the network and its decomposed modules, whose values upstream's own loader asks for too
    frequencies : of the rotary positions of a transformer of importances [D/2], which it asks for as well
    """
    prefix = target.prefix.replace(".", "-") if target is not None else ""
    found = {}
    for name, tensor in tensors.items():
        if match := _HERE.fullmatch(name):
            key, part, layer = match[1], match[2], int(match[3])
            new = f"_ci_fns.{prefix}{key}.layers.{2 * layer}.{'W' if part == 'weights' else 'b'}"
            bias = tensors[f"importance.{key}.biases.{layer}"]
            found[new] = _by_component(tensor, bias) if part == "weights" else tensor
        elif match := _HERE_GLOBAL.fullmatch(name):
            found[_GLOBAL + _global_there(match)] = tensor
            if frequencies is not None and match["n"]:
                found[f"{_GLOBAL}_blocks.{match['n']}.{_FREQUENCIES}"] = frequencies
        else:
            _, key, part = name.split(".")
            found[f"_components.{prefix}{key}.{part}"] = tensor
    if target is not None:
        found |= _of_target(target, sites)
    return {name: tensor.detach() for name, tensor in found.items()}


def from_any(
    tensors: Mapping[str, Tensor], kind: str, target: Target, frequencies: Tensor | None = None
) -> dict[str, Tensor]:
    """Tensors by their names here, whether they come by these or by upstream's; see `imported`."""
    ours = any(name.startswith(("components.", "importance.")) for name in tensors)
    return dict(tensors) if ours else imported(tensors, kind, target, frequencies)


def imported(
    tensors: Mapping[str, Tensor], kind: str, target: Target | None = None, frequencies: Tensor | None = None
) -> dict[str, Tensor]:
    """Tensors of an upstream checkpoint by their names here.

    Parameters
    ----------
    kind : of importance functions: mlp, vector_mlp or shared_mlp
    target : the network at hand; where given, that of the checkpoint must be the same
    frequencies : of the transformer at hand, which must be the checkpoint's

    Raises
    ------
    ConfigError
        A name is not one of upstream's current ones, or the checkpoint belongs to another network.
    """
    prefix = target.prefix.replace(".", "-") if target is not None else ""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(_FREQUENCIES):
            _refuse_other_base(tensor, frequencies)
        elif not name.startswith(OF_TARGET) and not _BIAS.fullmatch(name):
            new = _name_here(name, prefix)
            first = kind == "vector_mlp" and new.endswith("weights.0") and tensor.dim() == 3
            # [C, in, h] -> [in, C*h]: here the first layers of all components are one product.
            found[new] = tensor.transpose(0, 1).flatten(1) if first else tensor
    if target is not None:
        _refuse_other_target(tensors, target)
    return found


def _global_there(match: re.Match[str]) -> str:
    """The name in upstream's transformer."""
    if match["end"]:
        return f"{_ENDS[match['end']]}.{match['e']}"
    inner = f"attn.{match['a']}_proj.weight" if match["a"] else f"mlp.{2 * int(match['i'])}.{match['m']}"
    return f"_blocks.{match['n']}.{inner}"


def _name_here(name: str, prefix: str) -> str:
    """The name of one of upstream's parameters here."""
    if match := _THERE.fullmatch(name):
        part = "weights" if match[3] == "W" else "biases"
        return f"importance.{match[1].removeprefix(prefix)}.{part}.{int(match[2]) // 2}"
    if match := _PAIR.fullmatch(name):
        return f"components.{match[1].removeprefix(prefix)}.{match[2]}"
    if match := _THERE_GLOBAL.fullmatch(name.removeprefix(_GLOBAL)):
        return f"importance.{_global_here(match)}"
    raise ConfigError(
        f"workload.values_path: {name} is no parameter of a decomposition, neither here nor upstream;"
        " load an old checkpoint upstream and save its state_dict"
    )


def _global_here(match: re.Match[str]) -> str:
    """The name of a tensor of upstream's transformer here."""
    if match["end"]:
        return f"{'input' if match['end'] == 'input' else 'head'}.{match['e']}"
    inner = f"attention.{match['a']}" if match["a"] else f"layers.{int(match['i']) // 2}.{match['m']}"
    return f"blocks.{match['n']}.{inner}"


def _of_target(target: Target, sites: Sequence[Site]) -> dict[str, Tensor]:
    values = {f"{OF_TARGET}{name}": value for name, value in target.published().items()}
    prefix = target.prefix.replace(".", "-")
    biases = {f"{prefix}{site.key}": bias_of(target.get_submodule(site.name)) for site in sites}
    return values | {f"_components.{key}.bias": bias for key, bias in biases.items() if bias is not None}


def _refuse_other_target(tensors: Mapping[str, Tensor], target: Target) -> None:
    own = target.published()
    for name, tensor in tensors.items():
        if not name.startswith(OF_TARGET):
            continue
        here = own.get(name.removeprefix(OF_TARGET))
        same = here is not None and here.shape == tensor.shape
        if here is None or not same or not _equal(here, tensor):
            what = "is not in" if here is None else "differs from"
            raise ConfigError(
                f"workload.values_path: {name} of the checkpoint {what} the target at hand: the checkpoint"
                " decomposes another network"
            )


def _refuse_other_base(there: Tensor, here: Tensor | None) -> None:
    same = here is None or here.shape == there.shape
    # A checkpoint in bfloat16 has three digits.
    if not same or (here is not None and not torch.allclose(here.cpu().float(), there.float(), rtol=1e-2)):
        raise ConfigError(
            "workload.transformer: the rotary frequencies of the checkpoint are others; give its rope_base as"
            " base, and its n_heads as heads"
        )


def _equal(here: Tensor, there: Tensor) -> bool:
    """Whether two weights agree in the type of the checkpoint, which may hold fewer digits."""
    return torch.allclose(here.cpu().to(there.dtype).float(), there.float(), atol=1e-5)


def _by_component(weight: Tensor, bias: Tensor) -> Tensor:
    """A layer as upstream has it: vector_mlp's first [in, C*h] with bias [C, h] becomes [C, in, h]."""
    if weight.dim() == 2 and bias.dim() == 2:
        return weight.unflatten(1, tuple(bias.shape)).transpose(0, 1).contiguous()
    return weight
