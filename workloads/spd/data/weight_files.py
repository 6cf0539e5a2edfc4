"""Tensors on disk: safetensors files by their published layout, and PyTorch's own.

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

from perfsweep.workloads.errors import ConfigError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
METADATA = "__metadata__"


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors; the file appears whole or not at all."""
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    data = bytearray()
    for name, tensor in tensors.items():
        raw = tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # readers that map the file want the data aligned
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
        return {name: _tensor(name, entry, body) for name, entry in header.items() if name != METADATA}
    except (struct.error, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no whole safetensors file ({error}); copy it again") from error


def _tensor(name: str, entry: Mapping[str, Any], body: memoryview) -> Tensor:
    if entry["dtype"] not in DTYPES:
        raise ConfigError(
            f"{name} has the type {entry['dtype']}, which is not read; save it in one of {', '.join(DTYPES)}"
        )
    dtype, (start, end) = DTYPES[entry["dtype"]], entry["data_offsets"]
    if end > len(body):
        raise ValueError(f"{end - len(body)} bytes are missing at its end")
    if start == end:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(bytearray(body[start:end]), dtype=dtype).reshape(entry["shape"])


def read_torch(path: Path) -> dict[str, Tensor]:
    """All tensors of a file that ``torch.save`` wrote of a state_dict.

    Raises
    ------
    ConfigError
        The file is damaged, or holds anything but tensors by name.
    """
    try:
        found = load(path)
    except ValueError as error:
        raise ConfigError(f"{path} is no whole file of torch.save ({error}); copy it again") from error
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise ConfigError(f"{path} holds no tensors by name; save the state_dict of a module")
    return dict(found)


def load(path: Path) -> Any:
    """What ``torch.save`` wrote of plain values and tensors, on the host.

    Raises
    ------
    ValueError
        The file cannot be read; the message is the first line of what torch says.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged or foreign file torch raises whatever its reading stumbles over
        kind, said = type(error).__name__, str(error).strip().partition("\n")[0]
        raise ValueError(f"{kind}: {said}" if said else kind) from error
