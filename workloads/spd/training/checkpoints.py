"""Going on from a checkpoint of an earlier training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.weight_files import load, read_safetensors, read_torch

PARTS = frozenset({"step", "taken", "values", "generator", "sources", "optimizer", "scaler"})
"""What `Training.state` saves."""


def read(file: Path) -> dict[str, Any]:
    """The state in a checkpoint.

    Raises
    ------
    ConfigError
        There is no such file, or it is no checkpoint of this workload.
    """
    if file.is_dir():
        raise ConfigError(f"workload.resume={file} is a folder; give the checkpoint.pt in it")
    if not file.is_file():
        raise ConfigError(
            f"workload.resume={file} does not exist; give the checkpoint of an earlier training"
        )
    found = _loaded(file)
    missing = PARTS - found.keys() if isinstance(found, dict) else PARTS
    if missing:
        raise ConfigError(
            f"workload.resume={file} is no checkpoint of SPD: it lacks {', '.join(sorted(missing))}; give"
            " another one"
        )
    if isinstance(found["optimizer"], dict) and "param_groups" in found["optimizer"]:
        raise ConfigError(
            f"workload.resume={file}: was saved by an earlier version, in the layout of its levels. Finish it"
            " there, or begin from its values with workload.values_path."
        )
    return found


def read_values(file: Path) -> dict[str, Tensor]:
    """The tensors of a kept decomposition or of upstream's checkpoint.

    Raises
    ------
    ConfigError
        There is no such file, or it holds anything but tensors by name.
    """
    if not file.is_file():
        raise ConfigError(
            f"workload.values_path={file} is no file; give the decomposition.safetensors of a kept one, or"
            " upstream's .pth"
        )
    if file.suffix == ".safetensors":
        return read_safetensors(file, "workload.values_path: ")
    return read_torch(file)


def _loaded(file: Path) -> Any:
    try:
        return load(file)
    except ValueError as error:
        raise ConfigError(
            f"workload.resume={file} is no whole checkpoint ({error}); give another one"
        ) from error
