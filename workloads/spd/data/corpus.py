"""Rows that a training draws from: vectors of a toy, a token file, or texts without download.

These are stories from a grammar, the standard library, and sequences of known entropy.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.tokens import (
    BOS,
    BYTE_VOCAB,
    BYTES_SHA256,
    EOS,
    Rows,
    TokenFile,
    checked_tokens,
    checked_vectors,
    encode,
    feature_rows,
    read_tokens,
    read_vectors,
    token_rows,
    vector_rows,
    write_tokens,
)
from perfsweep.workloads.spd.presets import TargetSpec

NAMES = [
    *("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hana"),
    *("Ida", "Jon", "Kim", "Leo", "Mia", "Nils", "Ola", "Pia"),
]
ANIMALS = ["fox", "hare", "wolf", "mouse", "crow", "otter", "hen", "goat"]
PLACES = ["forest", "river", "village", "garden", "hill", "lake", "barn", "road"]
THINGS = ["lamp", "rope", "bread", "kite", "book", "stone", "bell", "coat"]
FEELINGS = ["happy", "sad", "tired", "proud", "scared", "curious", "calm", "angry"]
DEEDS = ["found", "lost", "carried", "hid", "painted", "mended", "dropped", "shared"]
TEMPLATES = (
    "One day {name} the {animal} went to the {place}. ",
    "{name} {deed} a {thing} near the {place}. ",
    "The {animal} was {feeling} because the {thing} was gone. ",
    '"Where is my {thing}?" asked {name}. ',
    "{name} and {other} {deed} the {thing} together. ",
    "In the end everyone in the {place} was {feeling}. ",
)


def stories(count: int, seed: int = 0) -> np.ndarray:
    """At least `count` ids of little stories, each between its special ids."""
    generator = np.random.default_rng(seed)
    parts: list[np.ndarray] = []
    total = 0
    while total < count:
        story = np.concatenate([[BOS], encode("".join(_sentences(generator))), [EOS]]).astype(np.uint16)
        parts.append(story)
        total += len(story)
    return np.concatenate(parts)


def _sentences(generator: np.random.Generator) -> Iterator[str]:
    name, other = generator.choice(NAMES, 2, replace=False)
    animal, place = generator.choice(ANIMALS), generator.choice(PLACES)
    for number in generator.integers(0, len(TEMPLATES), int(generator.integers(3, 7))):
        yield TEMPLATES[number].format(
            name=name,
            other=other,
            animal=animal,
            place=place,
            thing=generator.choice(THINGS),
            feeling=generator.choice(FEELINGS),
            deed=generator.choice(DEEDS),
        )


def standard_library(count: int) -> np.ndarray:
    """The first `count` ids of the text of Python's own library."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    parts, total = [], 0
    for file in files:
        if total >= count:
            break
        parts.append(encode(file.read_text(encoding="utf-8", errors="replace")))
        total += len(parts[-1])
    return np.concatenate(parts)[:count]


def markov(count: int, vocab: int, seed: int = 0, branches: int = 4) -> np.ndarray:
    """A chain in which each id is followed by one of `branches` others, all equally likely [count].

    Its entropy is ln(branches) nats a token: no model can reach a lower cross-entropy.
    """
    generator = np.random.default_rng(seed)
    followers = generator.integers(0, vocab, (vocab, branches))
    picks = generator.integers(0, branches, count)
    tokens = np.empty(count, dtype=np.int64)
    current = 0
    for position in range(count):
        current = followers[current, picks[position]]
        tokens[position] = current
    return tokens


def induction(count: int, vocab: int, period: int = 16, seed: int = 0) -> np.ndarray:
    """Random runs of `period` ids, each said twice: looking back tells the second half [count]."""
    generator = np.random.default_rng(seed)
    halves = generator.integers(0, vocab, (count // (2 * period) + 1, period))
    return np.concatenate([halves, halves], axis=1).reshape(-1)[:count]


def corpus_file(name: str, vocab: int, count: int, folder: Path) -> TokenFile:
    """The corpus called `name` with about `count` ids, made once and kept in `folder`."""
    path = folder / f"spd-{name}-{vocab}-{count}.bin"
    if not path.with_suffix(".json").is_file():
        byte_corpora = {"stories": lambda: stories(count), "stdlib": lambda: standard_library(count)}
        if name in byte_corpora:
            write_tokens(path, byte_corpora[name](), BYTE_VOCAB, BYTES_SHA256, EOS)
        else:
            tokens = markov(count, vocab) if name == "markov" else induction(count, vocab)
            write_tokens(path, tokens, vocab, hashlib.sha256(f"{name} {vocab}".encode()).hexdigest())
    return read_tokens(path, vocab)


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
