"""Random damage to the bytes of a file, as disks, full file systems, killed writers and editors do it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

WORDS = [
    b"",
    b"null",
    b"-1",
    b"0",
    b"1e308",
    b"NaN",
    b"99999999999999999999",
    b'""',
    b"[]",
    b"{}",
    b"true",
    b"\xff",
]
"""What a value of a text is replaced by."""
VALUE = re.compile(rb"-?\d+(\.\d+)?|\"[^\"]*\"|\b[a-z_]+\b")


@dataclass(frozen=True)
class Damage:
    """One kind of damage at one place: `at` and `size` are shares of the file.

    Args:
        name: What it does, for the message of a failure.
        at: Where, 0 at the first byte and 1 behind the last.
        size: How much of the file.
        content: Bytes that take part.
    """

    name: str
    at: float
    size: float
    content: bytes

    def __call__(self, whole: bytes) -> bytes:
        """The damaged content; it may be the same by chance."""
        first = min(round(self.at * len(whole)), len(whole))
        last = min(first + 1 + round(self.size * len(whole)), len(whole))
        return KINDS[self.name](whole, first, last, self.content)


def _flipped(whole: bytes, first: int, last: int, content: bytes) -> bytes:
    part = bytes(byte ^ mask for byte, mask in zip(whole[first:last], content * len(whole), strict=False))
    return whole[:first] + part + whole[first + len(part) :]


def _another_value(whole: bytes, first: int, last: int, content: bytes) -> bytes:
    found = list(VALUE.finditer(whole))
    if not found:
        return whole
    place = found[first % len(found)]
    return whole[: place.start()] + WORDS[content[0] % len(WORDS)] + whole[place.end() :]


def _another_digit(whole: bytes, first: int, last: int, content: bytes) -> bytes:
    digits = [at for at, byte in enumerate(whole) if 48 <= byte < 58]
    if not digits:
        return whole
    at = digits[first % len(digits)]
    return whole[:at] + bytes([48 + (whole[at] - 48 + 1 + content[0] % 9) % 10]) + whole[at + 1 :]


KINDS: dict[str, Callable[[bytes, int, int, bytes], bytes]] = {
    "cut": lambda whole, first, last, content: whole[:first],
    "without a part": lambda whole, first, last, content: whole[:first] + whole[last:],
    "a part twice": lambda whole, first, last, content: whole[:last] + whole[first:],
    "zeros": lambda whole, first, last, content: whole[:first] + bytes(last - first) + whole[last:],
    "foreign bytes": lambda whole, first, last, content: whole[:first] + content + whole[first:],
    "flipped bits": _flipped,
    "another value": _another_value,
    "another digit": _another_digit,
}
DAMAGES = st.builds(
    Damage,
    st.sampled_from(sorted(KINDS)),
    st.floats(0, 1),
    st.one_of(st.just(0.0), st.floats(0, 1)),
    st.binary(min_size=1, max_size=12),
)
