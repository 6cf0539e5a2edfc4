"""How commands end: a status, and text that steers no terminal."""

from __future__ import annotations

DONE = 0
SOME_FAILED = 1
"""Some trials, packs or publications failed, or an arm became slower."""

MISTAKE = 2
"""In the command or its input."""

ATTENTION = 3
"""Nothing more will happen by itself: a job is held, or cannot start."""

UNDECIDED = 4
"""What was measured does not answer the question."""

INTERRUPTED = 130

_HARMLESS = dict.fromkeys((*range(32), *range(127, 160)), "�") | {9: "\t", 10: "\n", 13: " "}


def harmless(text: str) -> str:
    """Text without control characters: what is in a sweep's files never steers a terminal."""
    return text.translate(_HARMLESS)
