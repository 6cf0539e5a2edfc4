"""Tensors on disk: safetensors by their library, in one file or in shards, and PyTorch's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from perfsweep.workloads.errors import ConfigError

FLOATS = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights that are no quantised ones, under the names that headers have for them."""


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, which may be parts of one another; the file appears whole or not at all.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    partial = path.with_name(path.name + ".partial")
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    try:
        save_file(own, partial)
    except SafetensorError as error:  # the library's word for what the system says
        raise OSError(str(error)) from error
    partial.replace(path)


def read_safetensors(path: Path, where: str = "", *, headers: bool = False) -> dict[str, Tensor]:
    """All tensors of a file; with `headers` their shapes and types without values, on the device meta.

    Raises
    ------
    ConfigError
        The file cannot be read, or is damaged; the message begins with `where`.
    """
    try:
        return _headers(path) if headers else load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{where}{path} cannot be read ({error}); copy it again") from error


def _headers(path: Path) -> dict[str, Tensor]:
    with safe_open(path, "pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {
            name: torch.empty(part.get_shape(), dtype=FLOATS.get(part.get_dtype(), torch.int8), device="meta")
            for name, part in slices.items()
        }


def read_shards(index: Path, read: Callable[[Path], dict[str, Tensor]], where: str) -> dict[str, Tensor]:
    """The tensors of a model's shards, by `read`, each from the file that `index` names.

    Raises
    ------
    ConfigError
        The index or a shard is damaged, or a tensor is missing; the message begins with `where`.
    """
    files: dict[str, set[str]] = {}
    try:
        for name, file in json.loads(index.read_text(encoding="utf-8"))["weight_map"].items():
            files.setdefault(str(file), set()).add(name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        kind = type(error).__name__
        raise ConfigError(f"{where}{index} cannot be read ({kind}: {error}); copy the model again") from error
    found: dict[str, Tensor] = {}
    for file, names in files.items():
        if not (index.parent / file).is_file():
            raise ConfigError(f"{where}{index} names {file}, which is not there; copy the model again")
        tensors = read(index.parent / file)
        if missing := sorted(names - tensors.keys()):
            raise ConfigError(
                f"{where}{index.parent / file} lacks {missing[0]}, which {index.name} says is in it; copy the"
                " model again"
            )
        found |= tensors
    return found


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
