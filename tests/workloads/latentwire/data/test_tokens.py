"""Tokenizers of two flavours whose tokens are bytes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from perfsweep.workloads.latentwire.data import tokens
from perfsweep.workloads.latentwire.data.tokens import FLAVOURS, A, B, byte_tokenizer, tokenizer_for


@pytest.mark.parametrize(
    ("flavour", "pad", "end", "bos", "vocabulary"), [(A, 259, 259, 256, 260), (B, 256, 258, None, 259)]
)
def test_specials_stand_behind_the_bytes(
    flavour, pad: int, end: int, bos: int | None, vocabulary: int
) -> None:
    made = byte_tokenizer(flavour)
    assert (made.pad, made.end, made.bos, made.vocabulary) == (pad, end, bos, vocabulary)
    assert [made.special(name) for name in flavour.specials] == list(range(256, vocabulary))
    assert made.template == flavour.template


def test_special_tokens_that_are_written_out_become_ids_where_that_is_meant() -> None:
    made = byte_tokenizer(A)
    assert made.encode("a<|sep|>ü<|eot|>") == [97, 258, 0xC3, 0xBC, 259]
    assert made.encode("<|sep|>", specials=False) == list(b"<|sep|>")
    assert made.encode("<|im_end|>") == list(b"<|im_end|>")
    assert made.encode("") == []


def test_specials_have_no_text_and_broken_bytes_a_sign() -> None:
    made = byte_tokenizer(A)
    assert made.decode([256, 97, 259, 0xC3, 0xBC]) == "aü"
    assert made.decode([0xC3]) == "�"


def test_another_template_is_another_tokenizer_of_the_same_ids() -> None:
    made = byte_tokenizer(A)
    other = made.with_template("{system}{user}")
    assert other.template == "{system}{user}"
    assert other.encode("a<|sep|>") == made.encode("a<|sep|>")
    assert made.template == A.template
    assert made.key != byte_tokenizer(B).key
    assert dataclasses.replace(made).key == made.key


@pytest.mark.parametrize(("kind", "installed"), [("bytes", True), ("auto", False)])
def test_flavours_take_turns_and_bytes_need_no_library(
    kind: str, installed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tokens, "bpe_available", lambda: installed)
    found = [tokenizer_for(kind, number, 512, tmp_path) for number in range(3)]
    assert [one.flavour for one in found] == [*FLAVOURS, FLAVOURS[0]]
    assert all(one.first_special == 256 for one in found)
