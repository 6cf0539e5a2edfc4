"""Weights on disk: safetensors files by their published layout, and local folders of GPT-2.

A safetensors file is an 8-byte little-endian length, a JSON header with dtype, shape and data_offsets of each
tensor, and the raw bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workloads.errors import ConfigError
from workloads.spd.maths.target import Gpt2, Target
from workloads.spd.presets import TargetSpec

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Causal masks that old files carry along; the network needs none.
MASKS = (".attn.bias", ".attn.masked_bias")


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors; the file appears whole or not at all."""
    header: dict[str, Any] = {}
    data = bytearray()
    for name, tensor in tensors.items():
        raw = (
            tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        )
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    partial.replace(path)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file.

    Raises
    ------
    ConfigError
        The file is truncated or has another layout.
    """
    data = path.read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        return {name: _tensor(entry, body) for name, entry in header.items() if name != "__metadata__"}
    except (struct.error, ValueError, KeyError, RuntimeError) as error:
        raise ConfigError(f"{path} is no whole safetensors file ({error}); copy it again") from error


def _tensor(entry: Mapping[str, Any], body: memoryview) -> Tensor:
    start, end = entry["data_offsets"]
    if end > len(body):
        raise ValueError(f"{end - len(body)} bytes are missing at its end")
    if start == end:
        return torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"]])
    return torch.frombuffer(bytearray(body[start:end]), dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])


def load_gpt2(folder: Path, fused: bool = False) -> tuple[Target, TargetSpec]:
    """A GPT-2 from a local folder of config.json and model.safetensors or pytorch_model.bin.

    Raises
    ------
    ConfigError
        A file is missing, or its tensors are not those of a GPT-2 of the configured size.
    """
    spec = gpt2_spec(folder)
    target = Gpt2(spec, fused)
    state = _plain_names(_read_folder(folder))
    _refuse_misfit(folder, target.state_dict(), state)
    target.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return target, spec


def _refuse_misfit(folder: Path, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    if missing := sorted(expected.keys() - state.keys()):
        raise ConfigError(
            f"workload.target_path={folder}: the weights lack {missing[0]}, so they are no GPT-2 of this"
            " configuration"
        )
    if unexpected := sorted(state.keys() - expected.keys()):
        raise ConfigError(
            f"workload.target_path={folder}: the weights hold {unexpected[0]}, which a GPT-2 has not"
        )
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            shapes = f"{list(tensor.shape)}, and config.json asks for {list(expected[name].shape)}"
            raise ConfigError(
                f"workload.target_path={folder}: {name} is {shapes}; the two files belong to different models"
            )


def gpt2_spec(folder: Path) -> TargetSpec:
    """The size of the GPT-2 in a folder, from its config.json."""
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text())
        width = int(config["n_embd"])
        return TargetSpec(
            "gpt2",
            layers=int(config["n_layer"]),
            width=width,
            heads=int(config["n_head"]),
            kv_heads=int(config["n_head"]),
            mlp=int(config.get("n_inner") or 4 * width),
            vocab=int(config["vocab_size"]),
            context=int(config.get("n_positions") or config["n_ctx"]),
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"workload.target_path={folder} needs the config.json of a GPT-2, and that cannot be read:"
            f" {error}"
        ) from error


def _read_folder(folder: Path) -> dict[str, Tensor]:
    if (folder / "model.safetensors").is_file():
        return read_safetensors(folder / "model.safetensors")
    file = folder / "pytorch_model.bin"
    if not file.is_file():
        raise ConfigError(
            f"workload.target_path={folder} holds neither model.safetensors nor pytorch_model.bin; copy one"
            " there"
        )
    return torch.load(file, map_location="cpu", weights_only=True)


def _plain_names(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without the optional prefix, the causal masks, and a head that repeats the embedding."""
    names = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    return {
        name: tensor
        for name, tensor in names.items()
        if not name.endswith(MASKS) and name != "lm_head.weight"
    }
