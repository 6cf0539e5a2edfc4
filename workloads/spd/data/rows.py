"""Rows that a training draws from: a token file, a corpus of this machine's, or vectors of a toy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.corpus import corpus_file
from perfsweep.workloads.spd.data.tokens import (
    Rows,
    TokenFile,
    checked_tokens,
    checked_vectors,
    feature_rows,
    read_tokens,
    read_vectors,
    token_rows,
    vector_rows,
)
from perfsweep.workloads.spd.presets import TargetSpec

TOKENS = 400_000
"""Bytes of stories, or ids of a chain."""
VECTORS = 2**17
"""Rows of a toy."""
DRAW_SEED = 11
"""Of targets and toy data: the same network whatever the training's seed."""


def load_rows(config: SpdConfig, spec: TargetSpec, cache_dir: Path) -> tuple[Rows, Rows]:
    """Training and held-out rows.

    Raises
    ------
    ConfigError
        The data do not fit the target; see `read_tokens` and `token_rows`.
    """
    recipe = config.recipe
    if config.vectors_path is not None:
        return vector_rows(read_vectors(Path(config.vectors_path).expanduser()), recipe.batch)
    if recipe.toy:
        return tuple(
            feature_rows(spec.features, VECTORS, recipe.activity, DRAW_SEED + part) for part in (0, 1)
        )  # type: ignore[return-value]
    return token_rows(_tokens(config, spec, cache_dir), recipe.seq, spec.context, recipe.batch)


def given_rows(data: np.ndarray, config: SpdConfig, spec: TargetSpec) -> tuple[Rows, Rows]:
    """Training and held-out rows of an array: vectors [n, f], token ids [n] or [n, S].

    Raises
    ------
    ConfigError
        It is neither, or holds ids beyond the vocabulary or too few rows.
    """
    recipe = config.recipe
    if spec.reads_vectors:
        return vector_rows(checked_vectors(data, "data"), recipe.batch)
    tokens = checked_tokens(data.reshape(-1), spec.vocab, "data")
    return token_rows(tokens, recipe.seq, spec.context, recipe.batch)


def _tokens(config: SpdConfig, spec: TargetSpec, cache_dir: Path) -> TokenFile:
    if config.tokens_path is not None:
        return read_tokens(Path(config.tokens_path).expanduser(), spec.vocab, config.tokenizer_sha256)
    recipe = config.recipe
    # Every iteration of a short run finds rows of its own; longer ones go over them again.
    wanted = max(TOKENS, 64 * recipe.batch * recipe.seq)
    return corpus_file(spec.corpus, spec.vocab, wanted, cache_dir)
