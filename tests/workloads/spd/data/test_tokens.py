"""Token files and rows: what is written, split, refused and told apart."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data import corpus
from perfsweep.workloads.spd.data.corpus import given_rows
from perfsweep.workloads.spd.data.tokens import (
    BYTES_SHA256,
    HELD_OUT_SHARE,
    checked_tokens,
    checked_vectors,
    read_tokens,
    read_vectors,
    token_rows,
    vector_rows,
    write_tokens,
)
from perfsweep.workloads.spd.presets import TargetSpec

TOKENS = np.random.default_rng(0).integers(0, 50, 4003)


def described(file: Path, **otherwise: Any) -> None:
    """A token file whose description says something else."""
    write_tokens(file, TOKENS, 60, "")
    meta = json.loads(file.with_suffix(".json").read_text())
    file.with_suffix(".json").write_text(json.dumps({**meta, **otherwise}))


@pytest.mark.parametrize(("vocab", "kind", "size"), [(2**16, "uint16", 2), (2**16 + 1, "uint32", 4)])
def test_ids_take_two_bytes_where_they_fit(vocab: int, kind: str, size: int, tmp_path: Path) -> None:
    file = tmp_path / "t.bin"
    write_tokens(file, TOKENS, vocab, "maker", eos_id=7)
    meta = json.loads(file.with_suffix(".json").read_text())
    assert (meta["dtype"], meta["n_tokens"], meta["vocab_size"], meta["eos_id"]) == (kind, 4003, vocab, 7)
    assert file.stat().st_size == 4003 * size
    found = read_tokens(file, vocab, "maker")
    assert (found.vocab, found.tokenizer_sha256, found.digest) == (vocab, "maker", meta["data_sha256"])
    assert not list(tmp_path.glob("*.partial"))


def test_a_file_of_nobody_knows_whose_tokenizer_is_taken(tmp_path: Path) -> None:
    write_tokens(tmp_path / "other.bin", TOKENS, 50, "b" * 64)
    with pytest.raises(ConfigError, match=r"another tokenizer \(b{12}, the target's is a{12}\)"):
        read_tokens(tmp_path / "other.bin", 50, "a" * 64)
    write_tokens(tmp_path / "t.bin", TOKENS, 50, "")
    assert len(read_tokens(tmp_path / "t.bin", 50, "a" * 64).tokens) == 4003
    (tmp_path / "t.txt").write_text("ab")
    assert read_tokens(tmp_path / "t.txt", 259).tokenizer_sha256 == BYTES_SHA256
    assert read_tokens(tmp_path / "t.txt", 259).vocab == ord("b") + 1


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda file: None, "does not exist; give a .bin with its .json next to it"),
        (lambda file: write_tokens(file, TOKENS, 60, ""), "holds token id 49, and .* ends at 48"),
        (
            lambda file: (write_tokens(file, TOKENS, 60, ""), file.write_bytes(b"12")),
            r"promises 4003 tokens of 2 bytes and the file has 2 bytes",
        ),
        (
            lambda file: (write_tokens(file, TOKENS, 60, ""), file.with_suffix(".json").write_text("{}")),
            "lacks data_sha256, dtype, n_tokens, tokenizer_sha256, vocab_size; write it",
        ),
        (lambda file: described(file, dtype=[]), r"has dtype \[\]; write it"),
        (lambda file: described(file, n_tokens="many"), "has n_tokens 'many', no whole number; write it"),
        (
            lambda file: (write_tokens(file, TOKENS, 60, ""), file.with_suffix(".json").write_text("3")),
            "t.json is no JSON object; write it",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(write, sentence: str, tmp_path: Path) -> None:
    write(tmp_path / "t.bin")
    with pytest.raises(ConfigError, match=sentence):
        read_tokens(tmp_path / "t.bin", 49)


def test_the_last_id_of_a_vocabulary_is_one(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.array([0, 48]))
    found = read_tokens(tmp_path / "t.npy", 49)
    assert found.vocab == 49
    assert isinstance(found.tokens, np.memmap), "a large file stays on the disk"
    with pytest.raises(
        ConfigError, match=r"data must hold one dimension of whole numbers; it has int64\(2, 1\)"
    ):
        checked_tokens(np.array([[0], [1]]), 5, "data")
    with pytest.raises(ConfigError, match="data holds the negative token id -2; ids count from 0"):
        checked_tokens(np.array([0, -2]), 5, "data")
    assert checked_tokens(np.array([], dtype=np.int64), 5, "data").vocab == 0


def test_rows_are_held_out_by_their_content_one_in_twenty() -> None:
    found = checked_tokens(TOKENS, 50, "data")
    train, held_out = token_rows(found, 4, 4, 1)
    rows = TOKENS[:4000].reshape(-1, 4)
    apart = np.array([zlib.crc32(row.tobytes()) % HELD_OUT_SHARE == 0 for row in rows])
    assert np.array_equal(held_out.values, rows[apart])
    assert np.array_equal(train.values, rows[~apart])
    assert (train.digest, held_out.digest) == (f"{found.digest}-train", f"{found.digest}-held-out")
    assert HELD_OUT_SHARE == 20
    assert not train.vectors


def test_a_batch_needs_as_many_rows_and_one_is_held_out_at_least() -> None:
    found = checked_tokens(TOKENS, 50, "data")
    most = len(token_rows(found, 4, 4, 1)[0])
    token_rows(found, 4, 4, most)
    with pytest.raises(ConfigError, match=f"make {most} training rows .*too few for .*batch_size={most + 1}"):
        token_rows(found, 4, 4, most + 1)
    with pytest.raises(ConfigError, match="seq_len=5 is longer than the target's context of 4"):
        token_rows(found, 5, 4, 1)
    alone = checked_tokens(np.zeros(8, dtype=np.int64), 50, "data")
    with pytest.raises(ConfigError, match="0 for evaluation, too few"):
        token_rows(alone, 4, 4, 1)


def test_vectors_are_split_likewise_and_their_rows_are_floats() -> None:
    vectors = np.random.default_rng(0).random((200, 3)).astype(np.float32)
    train, held_out = vector_rows(vectors, 5)
    assert train.vectors and len(train) + len(held_out) == 200 and 3 < len(held_out) < 20
    assert train.digest.removesuffix("-train") == held_out.digest.removesuffix("-held-out")
    with pytest.raises(
        ConfigError, match=r"200 vectors make .* too few for workload\.batch_size=200; give more"
    ):
        vector_rows(vectors, 200)


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros((2, 2), dtype=np.int64), r"data must hold float rows \[n, f\]; it has int64\(2, 2\)"),
        (np.array([[np.inf]]), "values that are no numbers in float32"),
    ],
)
def test_arrays_that_are_no_vectors_are_refused(array: np.ndarray, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        checked_vectors(array, "data")


def test_vectors_come_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.ones((2, 3)))
    assert read_vectors(tmp_path / "v.npy").dtype == np.float32
    with pytest.raises(ConfigError, match=r"does not exist; give a \.npy of rows"):
        read_vectors(tmp_path / "w.npy")
    (tmp_path / "w.npy").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"cannot be read as an array: .*; save it with numpy\.save"):
        read_vectors(tmp_path / "w.npy")


def test_what_is_no_array_is_refused_whatever_it_is(tmp_path: Path) -> None:
    file = tmp_path / "t.npy"
    for content in (b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x93NUMPY\x01\x00v\x00{"):
        file.write_bytes(content)
        with pytest.raises(
            ConfigError, match=r"^workload\.tokens_path=.* cannot be read as an array: .*; save"
        ):
            read_tokens(file, 50)
        with pytest.raises(
            ConfigError, match=r"^workload\.vectors_path=.* cannot be read as an array: .*; sa"
        ):
            read_vectors(file)


@pytest.mark.parametrize("shape", [(4003,), (-1, 1)])
def test_given_ids_are_one_row_behind_the_other(shape: tuple[int, ...]) -> None:
    config = SpdConfig(preset="lm_test", batch_size=1, seq_len=4)
    found = given_rows(TOKENS.reshape(shape), config, TargetSpec(vocab=50))
    expected = token_rows(checked_tokens(TOKENS, 50, "data"), 4, 512, 1)
    assert all(np.array_equal(one.values, other.values) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(("at_least", "wanted"), [(1000, 1000), (900, 64 * 3 * 5), (961, 961)])
def test_a_corpus_has_rows_for_sixty_four_iterations_at_least(
    at_least: int, wanted: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked, made = list[Any](), checked_tokens(TOKENS, 50, "data")
    monkeypatch.setattr(corpus, "TOKENS", at_least)
    monkeypatch.setattr(corpus, "corpus_file", lambda *words: asked.extend(words) or made)
    spec = TargetSpec(vocab=50)
    corpus.load_rows(SpdConfig(preset="lm_test", batch_size=3, seq_len=5), spec, tmp_path)
    assert asked == [spec.corpus, 50, wanted, tmp_path]
