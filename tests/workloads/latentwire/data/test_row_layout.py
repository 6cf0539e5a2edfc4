"""Where tokens stand in rows of a tokenizer whose tokens are bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.data.readers import Example
from perfsweep.workloads.latentwire.data.row_layout import Layout, Row
from perfsweep.workloads.latentwire.data.tokens import SYSTEM, A, B, Tokenizer, byte_tokenizer

TEMPLATE = "<|start|>{system}|{user}<|eot|>"
TOKENIZER = byte_tokenizer(dataclasses.replace(A, template=TEMPLATE))
BOS, START, _, EOT = range(256, 260)
HEAD = [BOS, START, *SYSTEM.encode(), ord("|")]


def layout(tokenizer: Any = TOKENIZER, **changed: Any) -> Layout:
    fields = {"anchor": "text", "latents": 3, "answer_tokens": 4, "max_prompt": 1000, **changed}
    return Layout(tokenizer, **fields)


class Leading(Tokenizer):
    """Joins blanks to the word behind them, and trims what people say."""

    trims = blank_leads = True


def leading() -> Leading:
    made = TOKENIZER
    return Leading(made.flavour, made.first_special, made.encode_plain, made.decode_ids, made.key)


@pytest.mark.parametrize(
    ("anchor", "ids", "prefix"), [("text", list(b"Answer: "), 12), ("chat", [EOT], 5), ("none", [], 4)]
)
def test_an_anchor_stands_between_latents_and_answer(anchor: str, ids: list[int], prefix: int) -> None:
    made = layout(anchor=anchor)
    assert made.before == [BOS]
    assert made.anchor_ids == ids
    assert made.prefix == prefix
    assert layout(byte_tokenizer(B), anchor="none").prefix == 3


def test_a_scaffold_holds_the_source_and_ends_with_the_anchor() -> None:
    assert layout().scaffold("ab") == [*HEAD, *b"ab", EOT, *b"Answer: "]
    assert layout(anchor="none").scaffold(" ab ") == [*HEAD, *b" ab ", EOT]
    assert layout().scaffold("<|eot|>") == [*HEAD, *b"<|eot|>", EOT, *b"Answer: "]


@pytest.mark.parametrize(("room", "source"), [(1, b"a"), (3, b"abc"), (9, b"abcd")])
def test_a_source_is_cut_to_the_room_that_the_template_leaves(room: int, source: bytes) -> None:
    taken = len(HEAD) + 1 + 8
    made = layout(max_prompt=taken + room)
    assert made.scaffold("abcd") == [*HEAD, *source, EOT, *b"Answer: "]
    with pytest.raises(ConfigError, match=f"leaves no room after the template's {taken} tokens; raise it"):
        layout(max_prompt=taken).scaffold("abcd")


@pytest.mark.parametrize(
    ("text", "expected"), [("ab", b"ab"), ("abc", b"abc"), ("abcd", b"abc"), ("", b""), ("<|", b"<|")]
)
def test_an_answer_is_cut_so_that_its_end_fits(text: str, expected: bytes) -> None:
    assert layout().answer(text) == [*expected, EOT]
    assert layout().row(Example("1", "s", text, (text,))) == Row(layout().scaffold("s"), [*expected, EOT])


def test_a_blank_goes_to_the_side_that_the_tokenizer_joins_it_to() -> None:
    made = layout(leading())
    assert made.anchor_text == "Answer:"
    assert made.answer("ab") == [*b" ab", EOT]
    assert made.answer("") == [EOT]
    assert made.scaffold(" ab ") == [*HEAD, *b"ab", EOT, *b"Answer:"]
    other = layout(leading(), anchor="none")
    assert other.anchor_text == ""
    assert other.answer("ab") == [*b"ab", EOT]


@pytest.mark.parametrize(
    "changed",
    [{"anchor": "none"}, {"answer_tokens": 5}, {"max_prompt": 999}, {"tokenizer": byte_tokenizer(A)}],
)
def test_everything_that_ids_depend_on_is_in_the_key(changed: dict[str, Any]) -> None:
    assert layout(**changed).key() != layout().key()
    assert layout(latents=9).key() == layout().key()


def test_an_answer_that_melts_into_the_anchor_is_noticed() -> None:
    melting = dataclasses.replace(
        TOKENIZER, encode_plain=lambda text: list(text.replace(": x", "#").encode())
    )
    assert layout(melting).separable(Example("1", "s", "y", ("y",)))
    assert not layout(melting).separable(Example("1", "s", "x", ("x",)))


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no chat template, .*; set workload\.chat_template"):
        layout(TOKENIZER.with_template(None))
