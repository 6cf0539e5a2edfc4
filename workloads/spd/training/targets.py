"""What is decomposed: a target and its data, and where its values come from.

These are a closed form, training here (kept), a draw, or a local folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.corpus import DRAW_SEED, TOKENS, VECTORS, corpus_file, given_rows, load_rows
from perfsweep.workloads.spd.data.loading import Plan, on_host
from perfsweep.workloads.spd.data.tokens import Rows, feature_rows, token_rows
from perfsweep.workloads.spd.maths.local_models import load_gpt2
from perfsweep.workloads.spd.maths.sites import Site, find_sites
from perfsweep.workloads.spd.maths.target import Superposition, Target, build, draw_values, freeze, set_star
from perfsweep.workloads.spd.maths.user_models import UserModel, make, try_out
from perfsweep.workloads.spd.presets import TargetSpec
from perfsweep.workloads.weight_files import read_safetensors, write_safetensors

LM_TRAINING = {"steps": 400, "batch": 32, "lr": 3e-3}
TOY_TRAINING = {"steps": 2000, "batch": 1024, "lr": 5e-3}
INIT_STD = 0.02


@dataclass(frozen=True)
class Given:
    """A network and its data that a program hands over, in the place of files.

    Attributes
    ----------
    module : that components replace; it is frozen and moved, so hand over a copy
    data : token ids [n] or [n, S], or vectors [n, f]
    values : V, U and importance functions to begin with, by their own names or upstream's
    """

    module: nn.Module
    data: np.ndarray
    values: Mapping[str, Tensor] | None = None


@dataclass(frozen=True)
class Problem:
    """What a training decomposes.

    Attributes
    ----------
    rows, held_out : for training, and for figures
    taken : batches that an earlier training has had
    """

    target: Target
    spec: TargetSpec
    sites: tuple[Site, ...]
    rows: Rows
    held_out: Rows
    taken: int = 0


def load_problem(config: SpdConfig, cache_dir: Path, fused: bool, given: Given | None, taken: int) -> Problem:
    """The target, its decomposed modules and its data.

    Raises
    ------
    ConfigError
        They do not fit one another.
    """
    target, spec = load_target(config, cache_dir, fused, given.module if given else None)
    sites = find_sites(target, config.recipe.modules)
    rows, held_out = given_rows(given.data, config, spec) if given else load_rows(config, spec, cache_dir)
    if isinstance(target, UserModel):
        try_out(target, sites, on_host(rows, rows.values[: config.recipe.batch]))
    return Problem(target, spec, sites, rows, held_out, taken)


def load_target(
    config: SpdConfig, cache_dir: Path, fused: bool, given: nn.Module | None = None
) -> tuple[Target, TargetSpec]:
    """The frozen target of a configuration, or the one that is given, float32 on the host, with its size."""
    spec = config.recipe.target
    if config.target is not None:
        module = make(config.target) if given is None else given
        return _user_model(module.float(), config)
    if config.target_path is not None:
        target, spec = load_gpt2(Path(config.target_path).expanduser(), fused)
        return freeze(target), spec
    target = build(spec, fused)
    if spec.values == "trained":
        target.load_state_dict(_trained_values(config, cache_dir))
    elif spec.values == "analytic" and isinstance(target, Superposition):
        set_star(target)
    else:
        draw_values(target, DRAW_SEED)
    return freeze(target), spec


def _user_model(module: nn.Module, config: SpdConfig) -> tuple[Target, TargetSpec]:
    """A user's network; the number of its logits is the vocabulary, and rows may have any length."""
    target = freeze(UserModel(module, config.output_part))
    spec = config.recipe.target
    if spec.reads_vectors:
        return target, spec
    seq = config.recipe.seq
    batch = torch.zeros(1, seq, dtype=torch.int64)
    try_out(target, (), batch)  # type: ignore[arg-type]
    with torch.no_grad():
        return target, dataclasses.replace(spec, vocab=target(batch).shape[-1], context=seq)


def _trained_values(config: SpdConfig, cache_dir: Path) -> dict[str, torch.Tensor]:
    """Values of a target that is trained once and kept as safetensors and config.json."""
    spec = config.recipe.target
    described = json.dumps(
        {**dataclasses.asdict(spec), **(TOY_TRAINING if spec.toy else LM_TRAINING)}, sort_keys=True
    )
    folder = cache_dir / f"spd-target-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    file = folder / "model.safetensors"
    if not file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(described)
        target = (
            train_toy(spec, config.recipe.activity)
            if spec.toy
            else train_language_model(spec, config, cache_dir)
        )
        write_safetensors(file, target.state_dict())
    return read_safetensors(file)


def train_language_model(spec: TargetSpec, config: SpdConfig, cache_dir: Path) -> Target:
    """A small model that predicts the next token of its corpus."""
    steps, batch, lr = int(LM_TRAINING["steps"]), int(LM_TRAINING["batch"]), LM_TRAINING["lr"]
    target = build(spec, fused=True)
    draw_values(target, DRAW_SEED, INIT_STD)
    rows, _ = token_rows(
        corpus_file(spec.corpus, spec.vocab, TOKENS, cache_dir), spec.context, spec.context, batch
    )
    optimizer = torch.optim.AdamW(target.parameters(), lr=lr, fused=True)
    numbers = Plan(len(rows), batch, DRAW_SEED).without_end()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / 20) * (1 - step / steps)
        tokens = torch.from_numpy(rows.values[next(numbers)].astype(np.int64))
        with torch.enable_grad():
            loss = F.cross_entropy(target(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return target


def train_toy(spec: TargetSpec, activity: float) -> Target:
    """A toy that reconstructs its sparse features."""
    target = build(spec)
    draw_values(target, DRAW_SEED, std=0.3)
    rows = feature_rows(spec.features, VECTORS, activity, DRAW_SEED)
    optimizer = torch.optim.AdamW(target.parameters(), lr=TOY_TRAINING["lr"])
    numbers = Plan(len(rows), int(TOY_TRAINING["batch"]), DRAW_SEED).without_end()
    for step in range(int(TOY_TRAINING["steps"])):
        optimizer.param_groups[0]["lr"] = TOY_TRAINING["lr"] * (1 - step / TOY_TRAINING["steps"])
        x = torch.from_numpy(rows.values[next(numbers)])
        loss = (target(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return target
