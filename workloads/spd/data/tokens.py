"""Token files, flat little-endian integers with a JSON file that describes them; rows of vectors for toys.

Nothing here knows a hub: data come from this machine's disk or from the generators of `corpus`. Texts are
tokenised as bytes, and three special ids follow those of bytes.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.workloads.errors import ConfigError

DTYPES = {"uint16": "<u2", "uint32": "<u4"}
BYTES = 256
BOS, EOS = 256, 257
BYTE_VOCAB = 259
BYTES_SHA256 = hashlib.sha256(b"bytes, bos 256, eos 257, pad 258").hexdigest()
HELD_OUT_SHARE = 20  # one row in so many is for evaluation
HASHED_BYTES = 2**20


@dataclass(frozen=True)
class TokenFile:
    """An opened token file.

    Attributes
    ----------
    tokens : [n] mapped from disk, or in memory
    vocab : ids lie below this
    tokenizer_sha256 : of what made the ids, empty where unknown
    digest : identity of the data
    """

    tokens: np.ndarray
    vocab: int
    tokenizer_sha256: str
    digest: str


@dataclass(frozen=True)
class Rows:
    """What batches are taken from: [n, S] token ids or [n, f] float32 vectors; `digest` is their identity."""

    values: np.ndarray
    digest: str

    def __len__(self) -> int:
        return len(self.values)

    @property
    def vectors(self) -> bool:
        """Whether rows are vectors instead of token ids."""
        return self.values.dtype == np.float32


def encode(text: str) -> np.ndarray:
    """Bytes of a text as ids [n]."""
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.uint16)


def decode(tokens: np.ndarray) -> str:
    """The text of ids; special ids vanish."""
    return bytes(int(token) for token in tokens if token < BYTES).decode("utf-8", errors="replace")


def write_tokens(
    path: Path, tokens: np.ndarray, vocab: int, tokenizer_sha256: str, eos_id: int | None = None
) -> None:
    """Write `path` and, as the last thing, its .json; each appears whole or not at all."""
    kind = "uint16" if vocab <= 2**16 else "uint32"
    data = np.ascontiguousarray(tokens, dtype=DTYPES[kind]).tobytes()
    meta = {
        "dtype": kind,
        "n_tokens": len(tokens),
        "vocab_size": vocab,
        "eos_id": eos_id,
        "tokenizer_sha256": tokenizer_sha256,
        "data_sha256": hashlib.sha256(data).hexdigest(),
    }
    _replace(path, data)
    _replace(path.with_suffix(".json"), json.dumps(meta).encode())


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)


def read_tokens(path: Path, vocab: int, tokenizer_sha256: str | None = None) -> TokenFile:
    """Open a token file for a target with `vocab` ids.

    Raises
    ------
    ConfigError
        The file is missing, truncated, foreign or of another tokeniser, or has an id beyond the vocabulary.
    """
    if not path.is_file():
        raise ConfigError(
            f"workload.tokens_path={path} does not exist; give a .bin with its .json next to it, a .npy or a"
            " .txt file"
        )
    found = _open(path)
    if tokenizer_sha256 and found.tokenizer_sha256 and found.tokenizer_sha256 != tokenizer_sha256:
        raise ConfigError(
            f"workload.tokens_path={path} was made by another tokenizer ({found.tokenizer_sha256[:12]}, the"
            f" target's is {tokenizer_sha256[:12]}); tokenise the text with the target's own"
        )
    _refuse_unknown_ids(found.tokens, vocab, f"workload.tokens_path={path}")
    return found


def checked_tokens(tokens: np.ndarray, vocab: int, name: str) -> TokenFile:
    """Token ids [n] of an array that is called `name`.

    Raises
    ------
    ConfigError
        They are no whole numbers from 0, or lie beyond the vocabulary.
    """
    _refuse_no_ids(tokens, name)
    _refuse_unknown_ids(tokens, vocab, name)
    return _in_memory(tokens, "")


def _refuse_unknown_ids(tokens: np.ndarray, vocab: int, name: str) -> None:
    largest = int(tokens.max()) if len(tokens) else 0
    if largest >= vocab:
        raise ConfigError(
            f"{name} holds token id {largest}, and the vocabulary of the target ends at"
            f" {vocab - 1}; tokenise the text with the target's own tokenizer"
        )


def _open(path: Path) -> TokenFile:
    if path.suffix == ".npy":
        return _in_memory(_load_array(path), "")
    if path.suffix == ".txt":
        return _in_memory(encode(_text(path)), BYTES_SHA256)
    meta = _sidecar(path)
    dtype = np.dtype(DTYPES[meta["dtype"]])
    size = path.stat().st_size
    if size != meta["n_tokens"] * dtype.itemsize:
        raise ConfigError(
            f"workload.tokens_path={path} is truncated or foreign: {path.with_suffix('.json').name} promises"
            f" {meta['n_tokens']} tokens of {dtype.itemsize} bytes and the file has {size} bytes; copy it"
            " again"
        )
    tokens = np.memmap(path, dtype=dtype, mode="r")
    return TokenFile(tokens, int(meta["vocab_size"]), str(meta["tokenizer_sha256"]), str(meta["data_sha256"]))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"workload.tokens_path={path} is no text in UTF-8 ({error.reason} at byte {error.start});"
            " convert it"
        ) from error


def _load_array(path: Path) -> np.ndarray:
    tokens = _array(path, "tokens_path", mmap_mode="r")
    _refuse_no_ids(tokens, f"workload.tokens_path={path}")
    return tokens


def _array(path: Path, field: str, **how: Any) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False, **how)
        if not isinstance(found, np.ndarray):
            raise ValueError("it is an archive of arrays")
    except Exception as error:  # a damaged file ends in whatever numpy's and zip's parsers meet
        raise ConfigError(
            f"workload.{field}={path} cannot be read as an array: {error}; save it with numpy.save"
        ) from error
    return found


def _refuse_no_ids(tokens: np.ndarray, name: str) -> None:
    if tokens.dtype.kind not in "ui" or tokens.ndim != 1:
        raise ConfigError(
            f"{name} must hold one dimension of whole numbers; it has {tokens.dtype}{tokens.shape}"
        )
    if len(tokens) and int(tokens.min()) < 0:
        raise ConfigError(f"{name} holds the negative token id {int(tokens.min())}; ids count from 0")


def read_vectors(path: Path) -> np.ndarray:
    """Rows [n, f] of a .npy file, float32.

    Raises
    ------
    ConfigError
        The file is missing or no array, or holds something else or what is no number.
    """
    if not path.is_file():
        raise ConfigError(f"workload.vectors_path={path} does not exist; give a .npy of rows [n, f]")
    return checked_vectors(_array(path, "vectors_path"), f"workload.vectors_path={path}")


def checked_vectors(vectors: np.ndarray, name: str) -> np.ndarray:
    """Rows [n, f] of an array that is called `name`, float32.

    Raises
    ------
    ConfigError
        They have another form, or hold what is no number.
    """
    if vectors.dtype.kind != "f" or vectors.ndim != 2:
        raise ConfigError(f"{name} must hold float rows [n, f]; it has {vectors.dtype}{vectors.shape}")
    narrow = np.ascontiguousarray(vectors, dtype=np.float32)
    if not np.isfinite(narrow).all():
        raise ConfigError(f"{name} holds values that are no numbers in float32; leave these rows out")
    return narrow


def _in_memory(tokens: np.ndarray, tokenizer_sha256: str) -> TokenFile:
    digest = hashlib.sha256(np.ascontiguousarray(tokens).tobytes()).hexdigest()
    return TokenFile(tokens, int(tokens.max()) + 1 if len(tokens) else 0, tokenizer_sha256, digest)


def _sidecar(path: Path) -> dict[str, Any]:
    file = path.with_suffix(".json")
    try:
        meta = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"workload.tokens_path={path} needs {file.name} next to it, which cannot be read: {error}"
        ) from error
    if wrong := _wrong(meta):
        raise ConfigError(f"{file} {wrong}; write it with perfsweep.workloads.spd.data.tokens.write_tokens")
    return meta


def _wrong(meta: Any) -> str:
    """What is wrong with the description of a token file; nothing where nothing is."""
    if not isinstance(meta, dict):
        return "is no JSON object"
    if missing := {"dtype", "n_tokens", "vocab_size", "tokenizer_sha256", "data_sha256"} - set(meta):
        return f"lacks {', '.join(sorted(missing))}"
    if meta["dtype"] not in [*DTYPES]:
        return f"has dtype {meta['dtype']}"
    numbers = [name for name in ("n_tokens", "vocab_size") if type(meta[name]) is not int]
    return f"has {numbers[0]} {meta[numbers[0]]!r}, no whole number" if numbers else ""


def token_rows(file: TokenFile, seq: int, context: int, batch: int) -> tuple[Rows, Rows]:
    """Rows of `seq` tokens for training and for evaluation, apart by a hash of each row's content.

    Raises
    ------
    ConfigError
        Rows are longer than the target's context, or there are too few for a batch.
    """
    if seq > context:
        raise ConfigError(
            f"workload.seq_len={seq} is longer than the target's context of {context}; choose at most that"
        )
    whole = np.asarray(file.tokens[: len(file.tokens) // seq * seq]).reshape(-1, seq)
    held_out = _held_out(whole)
    train, evaluation = whole[~held_out], whole[held_out]
    if len(train) < batch or len(evaluation) < 1:
        raise ConfigError(
            f"workload.seq_len={seq}: {len(file.tokens)} tokens make {len(train)} training rows and"
            f" {len(evaluation)} for evaluation, too few for workload.batch_size={batch}; give more tokens or"
            " shorter rows"
        )
    return Rows(train, file.digest + "-train"), Rows(evaluation, file.digest + "-held-out")


def vector_rows(vectors: np.ndarray, batch: int) -> tuple[Rows, Rows]:
    """Rows [n, f] for training and for evaluation, apart by a hash of each row's content.

    Raises
    ------
    ConfigError
        There are too few for a batch.
    """
    held_out = _held_out(vectors)
    train, evaluation = vectors[~held_out], vectors[held_out]
    if len(train) < batch or len(evaluation) < 1:
        raise ConfigError(
            f"{len(vectors)} vectors make {len(train)} training rows and {len(evaluation)} for evaluation,"
            f" too few for workload.batch_size={batch}; give more"
        )
    digest = hashlib.sha256(vectors.tobytes()).hexdigest()
    return Rows(train, digest + "-train"), Rows(evaluation, digest + "-held-out")


def _held_out(rows: np.ndarray) -> np.ndarray:
    """Which rows are for evaluation, by content: equal rows are never on both sides."""
    hashes = np.fromiter((zlib.crc32(row.tobytes()) for row in rows), dtype=np.uint32, count=len(rows))
    return hashes % HELD_OUT_SHARE == 0


def feature_rows(features: int, count: int, activity: float, seed: int) -> Rows:
    """Sparse vectors [count, f]: a feature is active with probability `activity`, uniform in [0, 1]."""
    generator = np.random.default_rng(seed)
    values = generator.random((count, features), dtype=np.float32)
    values *= generator.random((count, features), dtype=np.float32) < activity
    return Rows(values, hashlib.sha256(values[:HASHED_BYTES].tobytes()).hexdigest())
