"""The last part of a stream, in chunks of three bytes, of which four are kept at least."""

from __future__ import annotations

import hashlib

import pytest

from perfsweep.workloads.command.output import LIMIT, Kept


@pytest.mark.parametrize(
    ("chunks", "text", "whole"),
    [
        ([], "", True),
        (["abc"], "abc", True),
        (["abc", "d"], "abcd", True),
        (["abc", "def"], "abcdef", True),  # without the first chunk there would be three bytes
        (["abc", "def", "g"], "defg", False),
        (["abc", "defg"], "defg", False),
        (["abcdefgh"], "abcdefgh", True),
    ],
)
def test_as_many_chunks_are_let_go_as_leave_enough(chunks: list[str], text: str, whole: bool) -> None:
    kept = Kept(limit=4)
    for chunk in chunks:
        kept.add(chunk.encode())
    assert (kept.text, kept.whole, kept.written) == (text, whole, len("".join(chunks)))


def test_the_digest_is_that_of_all_and_must_be_asked_for() -> None:
    kept = Kept(limit=1, hashed=True)
    for chunk in (b"ab", b"c", b"d"):
        kept.add(chunk)
    assert kept.digest() == hashlib.sha256(b"abcd").digest()
    with pytest.raises(ValueError, match="this stream was not hashed"):
        Kept().digest()


def test_last_lines_leave_empty_ones_out() -> None:
    kept = Kept()
    kept.add(b"one\n\n two \n  \nthree")
    assert kept.last_lines(2) == [" two ", "three"]
    assert kept.last_lines(9) == ["one", " two ", "three"]
    assert Kept().last_lines(2) == []


def test_four_megabytes_are_kept_unless_told_otherwise() -> None:
    assert Kept().limit == LIMIT == 4 * 2**20
