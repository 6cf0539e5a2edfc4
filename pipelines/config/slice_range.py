"""What `profile.slice` may say: a name, or a range of iterations."""

from __future__ import annotations

import re

from workloads.errors import ConfigError

NAMES = ("auto", "step", "job", "first")

_RANGE = re.compile(r"(\d+):(\d+)")


def parse(text: str) -> tuple[int, int] | str:
    """The range, or the name, that `profile.slice` is.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if text in NAMES:
        return text
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"profile.slice={text} is unknown; choose from: {', '.join(NAMES)}, or a range of iterations such"
            " as 10:40"
        )
    start, end = int(found[1]), int(found[2])
    if end <= start:
        raise ConfigError(
            f"profile.slice={text} is empty: a range ends after its first iteration, as 10:40 does"
        )
    return start, end
