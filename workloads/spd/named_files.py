"""What the files that a configuration names say, read when a sweep is planned."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd import upstream
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.rows import load_rows
from perfsweep.workloads.spd.data.tokens import read_tokens, read_vectors
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.local_models import load_gpt2
from perfsweep.workloads.spd.maths.sites import find_sites
from perfsweep.workloads.spd.maths.target import Target, build
from perfsweep.workloads.spd.maths.user_models import source_of
from perfsweep.workloads.spd.training.checkpoints import read, read_values

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
