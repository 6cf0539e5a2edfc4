"""A stream of which the first five bytes pass at once, and of the rest the last four at least at its end."""

from __future__ import annotations

import io

import pytest

from perfsweep.workloads.script.output import Bounded


@pytest.mark.parametrize(
    ("writes", "at_once", "late", "left_out"),
    [
        (["abc"], "abc", "", 0),
        (["abcde"], "abcde", "", 0),
        (["abcd", "efg"], "abcde", "fg", 0),
        (["abcde", "fg", "hi"], "abcde", "fghi", 0),
        (["abcde", "fg", "hij"], "abcde", "fghij", 0),  # without fg there would be three bytes
        (["abcde", "fg", "hij", "k"], "abcde", "hijk", 2),
        (["abcde", "fghijk"], "abcde", "hijk", 2),
        (["abcdefghijk"], "abcde", "hijk", 2),
    ],
)
def test_what_passes_at_once_and_what_in_the_end(
    writes: list[str], at_once: str, late: str, left_out: int
) -> None:
    target = io.BytesIO()
    stream = Bounded(target, 5, 4)
    for text in writes:
        assert stream.write(text.encode()) == len(text)
    assert target.getvalue().decode() == at_once
    stream.end()
    gap = f"\n... {left_out / 2**20:.1f} MB left out ...\n" if left_out else ""
    assert target.getvalue().decode() == at_once + gap + late
    assert stream.last.decode() == "".join(writes)


def test_after_its_end_as_much_passes_as_is_kept() -> None:
    target = io.BytesIO()
    stream = Bounded(target, 0, 4)
    stream.write(b"ab")
    stream.end()
    stream.write(b"cdefgh")
    assert target.getvalue() == b"abcdef"
    stream.end()
    assert target.getvalue() == b"abcdefgh"


def test_a_megabyte_that_is_missing_is_said_so() -> None:
    target = io.BytesIO()
    stream = Bounded(target, 0, 1)
    for _ in range(3):
        stream.write(b"x" * 2**19)
    stream.end()
    assert target.getvalue() == b"\n... 1.5 MB left out ...\nx"


def test_the_last_four_thousand_bytes_are_at_hand_whatever_is_kept() -> None:
    stream = Bounded(io.BytesIO(), 1, 1)
    stream.write(b"a" * 5000)
    stream.write(b"b" * 96)
    assert stream.last == b"a" * 4000 + b"b" * 96
    assert stream.writable()
    assert not stream.isatty()
