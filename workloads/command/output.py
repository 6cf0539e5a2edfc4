"""What a run wrote, within bounds: a program that prints a gigabyte fills neither memory nor disk."""

from __future__ import annotations

import hashlib
from collections import deque

LIMIT = 4 << 20
"""Bytes that are kept at least, those written last."""


class Kept:
    """The last part of a stream, its length, and on demand the digest of all of it."""

    def __init__(self, limit: int = LIMIT, hashed: bool = False) -> None:
        self.limit = limit
        self.written = 0
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._digest = hashlib.sha256() if hashed else None

    def add(self, data: bytes) -> None:
        """Take in what was written next."""
        self.written += len(data)
        if self._digest:
            self._digest.update(data)
        self._chunks.append(data)
        self._held += len(data)
        while self._held - len(self._chunks[0]) >= self.limit:
            self._held -= len(self._chunks.popleft())

    @property
    def whole(self) -> bool:
        """Whether nothing was let go."""
        return self._held == self.written

    @property
    def text(self) -> str:
        """The part that was kept."""
        return b"".join(self._chunks).decode(errors="replace")

    def digest(self) -> bytes:
        """SHA-256 of everything that was written.

        Raises
        ------
        ValueError
            It was not asked for.
        """
        if self._digest is None:
            raise ValueError("this stream was not hashed")
        return self._digest.digest()

    def last_lines(self, number: int) -> list[str]:
        """The last lines that are not empty."""
        return [line for line in self.text.splitlines() if line.strip()][-number:]
