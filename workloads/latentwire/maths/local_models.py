"""Models from local Hugging Face folders: config.json and safetensors, Llama and Qwen2 names; no network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workloads.errors import ConfigError
from workloads.latentwire.maths.lm import CausalLM
from workloads.latentwire.presets import LMConfig, RopeScaling

KNOWN = ("llama", "qwen2")


def read_shape(folder: Path) -> LMConfig:
    """Shape of the model in a folder.

    Raises
    ------
    ConfigError
        There is no readable config.json, it lacks a field, or the model is of another kind.
    """
    found = _read_config(folder)
    kind = found.get("model_type") if isinstance(found, Mapping) else None
    if kind not in KNOWN:
        raise ConfigError(f"workload.lm_path={folder} is of type {kind}; choose one of: {', '.join(KNOWN)}")
    try:
        return _shape(found)
    except (KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise ConfigError(
            f"workload.lm_path={folder}: config.json lacks a field or has a wrong value"
            f" ({type(error).__name__}: {error}); complete it"
        ) from error


def _read_config(folder: Path) -> Any:
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of ValueError: no JSON, no UTF-8
        raise ConfigError(
            f"workload.lm_path={folder} has no readable config.json ({error}); name a model's folder"
        ) from error


def _shape(found: Mapping[str, Any]) -> LMConfig:
    heads = found["num_attention_heads"]
    rope = {**found.get("rope_parameters", {}), **(found.get("rope_scaling") or {})}
    return LMConfig(
        vocab_size=found["vocab_size"],
        d_model=found["hidden_size"],
        n_layers=found["num_hidden_layers"],
        n_heads=heads,
        n_kv_heads=found.get("num_key_value_heads", heads),
        head_dim=found.get("head_dim") or found["hidden_size"] // heads,
        d_ff=found["intermediate_size"],
        rope_theta=found.get("rope_theta") or rope.get("rope_theta", 1e4),
        rope_scaling=_scaling(rope),
        rms_eps=found.get("rms_norm_eps", 1e-6),
        qkv_bias=found["model_type"] == "qwen2" or bool(found.get("attention_bias")),
        tie_embeddings=bool(found.get("tie_word_embeddings")),
        max_pos=found.get("max_position_embeddings", 131072),
    )


def _scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    original = rope["original_max_position_embeddings"]
    return RopeScaling(rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"], original)


def load_weights(model: CausalLM, folder: Path) -> None:
    """Copy a folder's weights into a model of its shape.

    Raises
    ------
    ConfigError
        Safetensors or their library are missing or broken, or a tensor is missing or of another shape.
    """
    assign(model, _read_tensors(folder), str(folder))


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ConfigError("workload.lm_path needs the package safetensors; install perfsweep[hf]") from error
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"workload.lm_path={folder} has no *.safetensors weights; complete the folder or leave"
            " lm_path out"
        )
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(str(file), framework="pt") as tensors:
                found |= {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118 - it is no mapping
        except (OSError, SafetensorError) as error:
            raise ConfigError(
                f"workload.lm_path: {file} cannot be read ({error}); copy the model again"
            ) from error
    return found


def assign(model: CausalLM, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy tensors under their Llama or Qwen2 names into `model`.

    Raises
    ------
    ConfigError
        A tensor is missing or has another shape.
    """
    for name, parameter in _names(model).items():
        if name not in tensors or tensors[name].shape != parameter.shape:
            have = list(tensors[name].shape) if name in tensors else "missing"
            raise ConfigError(
                f"workload.lm_path={where}: {name} is {have}, expected {list(parameter.shape)}; use matching"
                " weights"
            )
        with torch.no_grad():
            parameter.copy_(tensors[name])


def _names(model: CausalLM) -> dict[str, Tensor]:
    names: dict[str, Tensor] = {"model.embed_tokens.weight": model.table, "model.norm.weight": model.norm}
    if model.head is not None:
        names["lm_head.weight"] = model.head.matrix
    places = {
        **{f"self_attn.{name}_proj": name for name in ("q", "k", "v", "o")},
        **{f"mlp.{name}_proj": name for name in ("gate", "up", "down")},
    }
    for number, layer in enumerate(model.layers):
        start = f"model.layers.{number}"
        for theirs, ours in places.items():
            weight: Any = getattr(layer, ours)
            names[f"{start}.{theirs}.weight"] = weight.matrix
            if weight.bias is not None:
                names[f"{start}.{theirs}.bias"] = weight.bias
        names[f"{start}.input_layernorm.weight"] = layer.norm1  # type: ignore[assignment]
        names[f"{start}.post_attention_layernorm.weight"] = layer.norm2  # type: ignore[assignment]
    return names
