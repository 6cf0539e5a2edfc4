"""The time of day without the jumps that it makes when somebody sets the clock."""

from __future__ import annotations

import time


class SteadyClock:
    """Seconds since the epoch as they were when it was made, and steadily on from there.

    Whoever waits until a moment of the time of day waits for days where the clock is set back by as much.
    """

    def __init__(self) -> None:
        self._made, self._began = time.time(), time.monotonic()

    def __call__(self) -> float:
        """What time it is."""
        return self._made + time.monotonic() - self._began
