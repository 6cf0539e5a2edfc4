"""Files that a configuration names: checkpoints to go on from, and what a plan refuses of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.corpus import load_rows
from perfsweep.workloads.spd.data.tokens import read_tokens, read_vectors
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.local_models import load_gpt2
from perfsweep.workloads.spd.maths.sites import find_sites
from perfsweep.workloads.spd.maths.target import Target, build
from perfsweep.workloads.spd.maths.user_models import source_of
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


ANY_ID = 2**62
"""A vocabulary that holds every id, where only the trial can tell the network's."""


def check_files(config: SpdConfig) -> None:
    """Refuse what a trial would refuse of files: data, a network's folder, values and a checkpoint.

    A network that a program of the user's makes is made in trials alone: files are then looked at by
    themselves.

    Raises
    ------
    ConfigError
        A file is missing, broken, not computed here, or belongs to another network.
    """
    values = None
    if config.values_path is not None:
        values = read_values(Path(config.values_path).expanduser())
    saved = read(Path(config.resume).expanduser()) if config.resume is not None else None
    if config.target is not None:
        return _of_a_program(config)
    if config.target_path is not None:
        target, spec = load_gpt2(Path(config.target_path).expanduser())
    else:
        spec = config.recipe.target
        target = build(spec)
    if config.tokens_path is not None or config.vectors_path is not None:
        load_rows(config, spec, Path())
    if saved is not None:
        _decomposition(config, target).load(saved["values"])
    elif values is not None:
        _take(values, config, target)
    return None


def _of_a_program(config: SpdConfig) -> None:
    assert config.target is not None
    file = source_of(config.target)
    if file is not None and not file.is_file():
        raise ConfigError(f"workload.target={config.target}: there is no file {file}; give the path of yours")
    if config.vectors_path is not None:
        read_vectors(Path(config.vectors_path).expanduser())
    if config.tokens_path is not None:
        read_tokens(Path(config.tokens_path).expanduser(), ANY_ID, config.tokenizer_sha256)


def _decomposition(config: SpdConfig, target: Target) -> Decomposition:
    sites = find_sites(target, config.recipe.modules)
    return Decomposition(sites, config.recipe, 0, getattr(torch, config.dtype), sigmoid=config.sigmoid)


def _take(values: Mapping[str, Tensor], config: SpdConfig, target: Target) -> None:
    """As a trial does, which also compares the values of a recipe's own network: they are made there."""
    if config.target_path is None:
        values = {name: value for name, value in values.items() if not name.startswith(upstream.OF_TARGET)}
    decomposition = _decomposition(config, target)
    decomposition.load(upstream.from_any(values, config.recipe.importance, target, decomposition.frequencies))
