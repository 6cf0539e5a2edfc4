"""What `profile.slice` may say: a name, or a range of iterations."""

from __future__ import annotations

import re

from perfsweep.workloads.errors import ConfigError

NAMES = ("auto", "step", "job", "first")

_RANGE = re.compile(r"(\d+):(\d+)")


def parse(text: str) -> tuple[int, int] | str:
    """Read `profile.slice`: a range of iterations, or a name.

    Raises
    ------
    ConfigError
        It is neither.
    """
    if text in NAMES:
        return text
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"profile.slice={text} is unknown; choose from: {', '.join(NAMES)}, or a range of iterations such"
            " as 10:40"
        )
    start, end = int(match[1]), int(match[2])
    if end <= start:
        raise ConfigError(
            f"profile.slice={text} is empty: a range ends after its first iteration, as 10:40 does"
        )
    return start, end
