"""Frozen models: those of a configuration, and weights of local folders under our names."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths import losses
from perfsweep.workloads.latentwire.maths.lm import CausalLM
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.maths.trainables import Trained
from perfsweep.workloads.latentwire.presets import LMS, LMConfig
from perfsweep.workloads.weight_files import FLOATS, read_safetensors, read_shards

DTYPES = {"float32": torch.float32, "float64": torch.float64}
LM_SEED = 100
HOST_DRAWN = 100_000_000  # parameters up to which weights are drawn on the host, the same for every device


def model_shapes(config: LatentWireConfig) -> list[LMConfig]:
    """Shapes of the frozen models: the preset's, or those of local folders."""
    if config.lm_path is not None:
        shapes = [read_shape(folder, config.inert_fields) for folder in config.lm_folders]
        config.require_depth(shapes)
        config.require_targets(shapes)
        return shapes
    return [LMS[name] for name in config.sizes.lms[: config.models]]


def frozen_lm(config: LatentWireConfig, number: int, shape: LMConfig, device: torch.device) -> CausalLM:
    """One frozen model with weights of its folder, or drawn by its number alone."""
    large = shape.body_parameters + shape.head_parameters > HOST_DRAWN
    generator = torch.Generator(device if large else "cpu").manual_seed(LM_SEED + number)
    lm = CausalLM(shape, generator, DTYPES[config.dtype])
    if config.lm_path is not None:
        load_weights(lm, config.lm_folders[number])
    return lm.to(device)


@dataclass
class Model:
    """One frozen model with all that serves it.

    Attributes
    ----------
    before, anchor : [n, d] embedded tokens around the soft ones
    rho : [] root mean square of the embedding table before any rounding
    mixture : [4] how much each term counts
    table : mean and deviation [d] of the table's entries, where a loss asks for them
    """

    number: int
    lm: CausalLM
    trained: Trained
    before: Tensor
    anchor: Tensor
    rho: Tensor
    mixture: Tensor
    table: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(
        cls, number: int, lm: CausalLM, trained: Trained, rho: Tensor, layout: Layout, manifold: bool = False
    ) -> Model:
        """A model whose rows are written as `layout` says, with statistics of its table for `manifold`."""
        before, anchor = (
            lm.embed(torch.tensor(ids, device=lm.table.device, dtype=torch.long)).detach()
            for ids in (layout.before, layout.anchor_ids)
        )
        wide = lm.table.float() if manifold else None
        table = None if wide is None else (wide.mean(0), wide.std(0))
        return cls(number, lm, trained, before, anchor, rho, losses.mixed(lm.table.device, rho.dtype), table)


INDEX = "model.safetensors.index.json"
JOINED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}
"""Matrices of which some folders make one, in the order of its outputs."""
DERIVED = ".rotary_emb.inv_freq"
"""End of the names under which old folders keep what follows from the configuration."""


def load_weights(model: CausalLM, folder: Path) -> None:
    """Copy a folder's weights into a model of its shape.

    Raises
    ------
    ConfigError
        Safetensors are missing or broken, or a tensor is missing, of another shape or type,
        or has no place in the model.
    """
    assign(model, _parts(_read_tensors(folder), model.config), str(folder))


def check_weights(shape: LMConfig, folder: Path) -> None:
    """Refuse what `load_weights` would for a model of `shape`, by the headers of the folder's files alone.

    Raises
    ------
    ConfigError
        As `load_weights`.
    """
    with torch.device("meta"):
        model = CausalLM(shape)
    _check(model, _parts(_read_tensors(folder, headers=True), shape), str(folder))


def _read_tensors(folder: Path, headers: bool = False) -> dict[str, Tensor]:
    where = "workload.lm_path: "
    read = functools.partial(read_safetensors, where=where, headers=headers)
    if (folder / INDEX).exists():
        return read_shards(folder / INDEX, read, where)
    files = sorted(folder.glob("*.safetensors"))
    if folder / "model.safetensors" in files:
        files = [folder / "model.safetensors"]
    if len(files) != 1:
        what = f"{len(files)} *.safetensors files and no {INDEX}" if files else "no *.safetensors weights"
        raise ConfigError(f"workload.lm_path={folder} has {what}; complete the folder or leave lm_path out")
    return read(files[0])


def _parts(tensors: Mapping[str, Tensor], shape: LMConfig) -> Mapping[str, Tensor]:
    """Tensors of a folder; joined tensors are cut into the parts that layers have."""
    if not shape.joined_folder:
        return tensors
    keys = shape.n_kv_heads * shape.head_dim
    sizes = {"qkv": (shape.n_heads * shape.head_dim, keys, keys), "gate_up": (shape.d_ff, shape.d_ff)}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        joined = next((one for one in JOINED if f".{one}_proj." in name), None)
        if joined is None or sum(sizes[joined]) != len(tensor):
            found[name] = tensor
            continue
        for part, own in zip(JOINED[joined], tensor.split(sizes[joined]), strict=True):
            found[name.replace(f".{joined}_", f".{part}_")] = own
    return found


def assign(model: CausalLM, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors under their Llama or Qwen2 names into `model`.

    Raises
    ------
    ConfigError
        A tensor is missing, has another shape, is quantised, or has no place in the model.
    """
    _check(model, tensors, where)
    with torch.no_grad():
        for name, parameter in parameters_of(model).items():
            parameter.copy_(tensors[name])
            if name.endswith("norm.weight"):
                parameter.add_(model.config.folder_norm_offset)
        # What the table is multiplied by, a tied head is not: the norm before the head makes up for it.
        model.table.mul_(model.config.folder_table_scale)
        if model.head is None:
            model.norm.div_(model.config.folder_table_scale)


def _check(model: CausalLM, tensors: Mapping[str, Tensor], where: str) -> None:
    for name, parameter in parameters_of(model).items():
        if name not in tensors or tensors[name].shape != parameter.shape:
            have = list(tensors[name].shape) if name in tensors else "missing"
            raise ConfigError(
                f"workload.lm_path={where}: {name} is {have}, expected {list(parameter.shape)}; use matching"
                " weights"
            )
        if tensors[name].dtype not in FLOATS.values():
            raise ConfigError(
                f"workload.lm_path={where}: {name} is quantised ({tensors[name].dtype}); use the model's"
                " weights in floating point"
            )
    _refuse_rest(model, tensors, where)


def _refuse_rest(model: CausalLM, tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse tensors that the model would not use."""
    rest = sorted(name for name in set(tensors) - set(parameters_of(model)) if not name.endswith(DERIVED))
    if rest == ["lm_head.weight"]:
        head, table = tensors["lm_head.weight"], tensors["model.embed_tokens.weight"]
        if head.is_meta or torch.equal(head, table):
            return  # a tied head, written twice
    if rest:
        raise ConfigError(
            f"workload.lm_path={where}: {rest[0]} has no place in the model that config.json describes; use"
            " a folder whose files belong together"
        )


def parameters_of(model: CausalLM) -> dict[str, Tensor]:
    """A model's parameters under the names that Llama and Qwen2 folders have for them."""
    names: dict[str, Tensor] = {"model.embed_tokens.weight": model.table, "model.norm.weight": model.norm}
    if model.head is not None:
        names["lm_head.weight"] = model.head.matrix
    places = {
        **{f"self_attn.{name}_proj": name for name in ("q", "k", "v", "o")},
        **{f"mlp.{name}_proj": name for name in ("gate", "up", "down")},
    }
    norms = {
        "norm1": "input_layernorm",
        "after1": "post_attention_layernorm",
        "norm2": f"{'pre_feedforward' if model.config.norms == 'both' else 'post_attention'}_layernorm",
        "after2": "post_feedforward_layernorm",
        **{f"{name}_norm": f"self_attn.{name}_norm" for name in ("q", "k")},
    }
    for number, layer in enumerate(model.layers):
        start = f"model.layers.{number}"
        for theirs, ours in places.items():
            weight: Any = getattr(layer, ours)
            names[f"{start}.{theirs}.weight"] = weight.matrix
            if weight.bias is not None:
                names[f"{start}.{theirs}.bias"] = weight.bias
        for ours, theirs in norms.items():
            if (norm := getattr(layer, ours)) is not None:
                names[f"{start}.{theirs}.weight"] = norm
    return names
