"""Checkpoints: what is trained and how far training has come, as safetensors and JSON.

A folder holds ``checkpoint.json`` (format, version, step, scale of the loss, and the facts that must agree
where training goes on), ``weights.safetensors`` (everything trained: ``encoder.*``, ``models.N.adapter.*``,
``models.N.lora.*``, ``models.N.deep.*``) and ``optimizer.safetensors`` (``NAME.exp_avg``,
``NAME.exp_avg_sq`` and ``NAME.step`` of AdamW under the names of the weights, ``random`` and counts).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import SIZES, LatentWireConfig
from perfsweep.workloads.latentwire.data.cache import fingerprint
from perfsweep.workloads.latentwire.data.row_layout import Layout
from perfsweep.workloads.latentwire.maths.encoder import LatentEncoder
from perfsweep.workloads.latentwire.maths.frozen import Model
from perfsweep.workloads.latentwire.maths.trainables import Trained
from perfsweep.workloads.weight_files import read_safetensors, write_safetensors

FORMAT, VERSION = "perfsweep.latentwire", 1
MOMENTS = ("exp_avg", "exp_avg_sq")
SCALARS = ("loss_scale", "good", "skipped")
OPTIONS = ("norm", "dropout", "dtype", "lora_rank", "lora_alpha", "lora_layers", "deep_prefix")
"""Fields of the configuration that must agree where a training goes on."""


def modules_of(encoder: LatentEncoder, trained: Sequence[Trained]) -> dict[str, nn.Module]:
    """Everything that is trained, by the beginning of its names."""
    return {"encoder": encoder, **{f"models.{number}": one for number, one in enumerate(trained)}}


def write(folder: Path, modules: Mapping[str, nn.Module], state: Mapping[str, Any], facts: Any) -> None:
    """Write a training's state (`LatentWire.state_dict`) into a new folder, with facts about it.

    Raises
    ------
    ConfigError
        The folder cannot be written.
    """
    updates = state["updates"]
    names = _parameters(modules)
    moments = {
        f"{names[number]}.{part}": value.detach().cpu()
        for number, values in updates["optimizer"]["state"].items()
        for part, value in values.items()
    }
    counts = {name: updates[name].detach().cpu() for name in SCALARS}
    about = {"format": FORMAT, "version": VERSION, "step": state["step"], "updates": updates["step"], **facts}
    try:
        folder.mkdir()
        write_safetensors(folder / "weights.safetensors", _weights(modules))
        optimizer = {**moments, **counts, "random": state["random"]}
        write_safetensors(folder / "optimizer.safetensors", optimizer)
        (folder / "checkpoint.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error}); name another folder") from error


def _weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    return {
        f"{start}.{name}": value.detach().cpu()
        for start, module in modules.items()
        for name, value in module.state_dict().items()
    }


def _parameters(modules: Mapping[str, nn.Module]) -> list[str]:
    """Names in the order in which the optimizer has them."""
    return [f"{start}.{name}" for start, module in modules.items() for name, _ in module.named_parameters()]


def read(folder: Path, field: str = "resume") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Facts and weights of a checkpoint; `field` of the configuration, or an argument, has named it.

    Raises
    ------
    ConfigError
        The folder holds no checkpoint of this format and version.
    """
    try:
        about = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"workload.{field}={folder} has no readable checkpoint.json ({error}); name the folder"
            " `checkpoint` that a training kept"
        ) from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ConfigError(
            f"workload.{field}={folder}: checkpoint.json is not LatentWire's; name another folder"
        )
    if about.get("version") != VERSION:
        raise ConfigError(
            f"workload.{field}={folder}: checkpoint.json has version {about.get('version')}, and version"
            f" {VERSION} is read here; run the training again with keep=FOLDER"
        )
    for name in ("step", "updates"):
        if type(about.get(name)) is not int:
            raise ConfigError(
                f"workload.{field}={folder}: checkpoint.json has {name}={about.get(name)}, no whole number;"
                " copy the checkpoint again"
            )
    return about, read_safetensors(folder / "weights.safetensors", f"workload.{field}: ")


def digest(folder: Path) -> str:
    """A hash of a checkpoint's weights and step."""
    about, weights = read(folder)
    return f"{fingerprint(sorted(weights.items()))}/{about['step']}"


def resume(
    folder: Path, modules: Mapping[str, nn.Module], facts: Mapping[str, Any], groups: Sequence[Any]
) -> dict[str, Any]:
    """The state of a training that a checkpoint holds, as `LatentWire.load_state_dict` takes it.

    Parameters
    ----------
    facts : of the training that goes on; those of the checkpoint must be the same
    groups : options of the optimizer that goes on

    Raises
    ------
    ConfigError
        It is no checkpoint, it is of another training, or other tensors are trained here.
    """
    about, weights = read(folder)
    refuse_other(folder, about, facts)
    _require_equal_shapes(folder / "weights.safetensors", weights, _weights(modules))
    held = read_moments(folder)
    stepped = {number: name for number, name in enumerate(_parameters(modules)) if f"{name}.step" in held}
    expected = {f"{name}.{part}": weights[name] for name in stepped.values() for part in MOMENTS}
    expected |= {name: torch.empty(()) for name in SCALARS}
    expected["random"] = torch.get_rng_state()
    _require_equal_shapes(folder / "optimizer.safetensors", held, expected, whole=False)
    state = {
        number: {part: held[f"{name}.{part}"] for part in ("step", *MOMENTS)}
        for number, name in stepped.items()
    }
    return {
        "step": about["step"],
        "modules": [_within(weights, start) for start in modules],
        "updates": {
            "step": about["updates"],
            "optimizer": {"state": state, "param_groups": list(groups)},
            **{name: held[name] for name in SCALARS},
        },
        "random": held["random"],
    }


def refuse_other(folder: Path, about: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that says other facts about itself.

    Raises
    ------
    ConfigError
        The message names the first that differs.
    """
    for name, value in json.loads(json.dumps(facts)).items():
        if about.get(name) != value:
            raise ConfigError(
                f"workload.resume={folder} was kept with {name}={about.get(name)}, and here it is {value}; go"
                " on as it was kept"
            )


def read_moments(folder: Path) -> dict[str, Tensor]:
    """The optimizer's tensors of a checkpoint.

    Raises
    ------
    ConfigError
        There is no such file, or it is damaged.
    """
    return read_safetensors(folder / "optimizer.safetensors", "workload.resume: ")


def _within(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """Tensors whose names begin with `start`, without it."""
    return {name[len(start) + 1 :]: one for name, one in tensors.items() if name.startswith(f"{start}.")}


def _require_equal_shapes(
    file: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], whole: bool = True
) -> None:
    """Refuse a file that lacks a tensor, has one of another shape, or, if `whole`, one too many."""
    shapes = {name: list(value.shape) for name, value in found.items()}
    for name, value in expected.items():
        if shapes.get(name) != list(value.shape):
            raise ConfigError(
                f"workload.resume: {file} has {name} as {shapes.get(name, 'missing')}, expected"
                f" {list(value.shape)}; copy the checkpoint again"
            )
    if whole and (rest := sorted(set(found) - set(expected))):
        raise ConfigError(
            f"workload.resume: {file} has {rest[0]}, which is not trained here; go on as it was kept"
        )


def facts_of_training(
    config: LatentWireConfig, fingerprints: Mapping[int, str], data: Sequence[str], order: Sequence[int]
) -> dict[str, Any]:
    """Collect what must be the same where a training goes on.

    `fingerprints` are of the frozen models by number, `data` of each model's rows; `order` is what rows are
    drawn by.
    """
    return {
        **facts_of_configuration(config),
        "frozen_models": [fingerprints[number] for number in sorted(fingerprints)],
        "data": list(data),
        "data_order": list(order),
    }


def facts_of_configuration(config: LatentWireConfig) -> dict[str, Any]:
    """Collect what must be the same as far as the configuration alone says it."""
    return {
        "sizes": {name: getattr(config.sizes, name) for name in SIZES},
        **{name: getattr(config, name) for name in OPTIONS},
        "lora_targets": list(config.lora_targets),
    }


def facts_of_models(
    models: Mapping[int, Model], layouts: Sequence[Layout], folders: Sequence[Path]
) -> list[dict[str, Any]]:
    """Collect what a user of soft tokens must know of each model; `folders` are empty for generated ones."""
    return [
        {
            "folder": str(folders[number]) if folders else None,
            "width": models[number].lm.config.d_model,
            "layers": models[number].lm.config.n_layers,
            "key_heads": models[number].lm.config.n_kv_heads,
            "head_width": models[number].lm.config.head_dim,
            "rms": models[number].rho.item(),
            "before": layout.before,
            "after": layout.anchor_ids,
            "end": layout.tokenizer.end,
        }
        for number, layout in enumerate(layouts)
    ]
