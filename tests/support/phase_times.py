"""Clocks for phases: one that adds up processor time, and one that knows their order alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time


class PhaseTimes:
    """Process CPU time by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        start = process_time()
        yield
        self.seconds[name] += process_time() - start


class PhaseNames:
    """Names of phases as they begin."""

    def __init__(self) -> None:
        self.names: list[str] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.names.append(name)
        yield
