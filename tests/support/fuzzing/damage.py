"""Random damage to the bytes of a file, as disks, full file systems, killed writers and editors do it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

WORDS = [*b'|null|-1|0|1e308|NaN|99999999999999999999|""|[]|{}|true|\xff'.split(b"|")]
"""What a value of a text is replaced by."""
VALUE = re.compile(rb"-?\d+(\.\d+)?|\"[^\"]*\"|\b[a-z_]+\b")


@dataclass(frozen=True)
class Damage:
    """One kind of damage to a part: `at` and `size` are shares of the file, `content` bytes that are used."""

    name: str
    at: float
    size: float
    content: bytes

    def __call__(self, whole: bytes) -> bytes:
        """The damaged content; it may be the same by chance."""
        first = min(round(self.at * len(whole)), len(whole))
        last = min(first + 1 + round(self.size * len(whole)), len(whole))
        before, part, after = whole[:first], whole[first:last], whole[last:]
        return KINDS[self.name](before, part, after, self.content)


def _flipped(before: bytes, part: bytes, after: bytes, content: bytes) -> bytes:
    masks = content * (1 + len(part) // len(content))
    return before + bytes(byte ^ mask for byte, mask in zip(part, masks, strict=False)) + after


def _another(what: re.Pattern[bytes], new: Callable[[bytes, int], bytes]) -> Callable[..., bytes]:
    """One match of a pattern becomes what `new` makes of it and of a byte."""

    def damaged(before: bytes, part: bytes, after: bytes, content: bytes) -> bytes:
        whole = before + part + after
        found = list(what.finditer(whole))
        if not found:
            return whole
        place = found[len(before) % len(found)]
        return whole[: place.start()] + new(place[0], content[0]) + whole[place.end() :]

    return damaged


KINDS: dict[str, Callable[[bytes, bytes, bytes, bytes], bytes]] = {
    "cut": lambda before, part, after, content: before,
    "without a part": lambda before, part, after, content: before + after,
    "a part twice": lambda before, part, after, content: before + part + part + after,
    "zeros": lambda before, part, after, content: before + bytes(len(part)) + after,
    "foreign bytes": lambda before, part, after, content: before + content + part + after,
    "flipped bits": _flipped,
    "another value": _another(VALUE, lambda old, byte: WORDS[byte % len(WORDS)]),
    "another digit": _another(re.compile(rb"\d"), lambda old, byte: b"%d" % ((int(old) + 1 + byte % 9) % 10)),
}
DAMAGES = st.builds(
    Damage,
    st.sampled_from(sorted(KINDS)),
    st.floats(0, 1),
    st.one_of(st.just(0.0), st.floats(0, 1)),
    st.binary(min_size=1, max_size=12),
)
