"""A job written as one generator that rests between its iterations."""

from __future__ import annotations

from collections.abc import Iterator

from perfsweep.workloads.api import Clock, NullClock


class JobOfPasses:
    """Mixin of a workload whose job is a generator: each iteration goes on to where it rests next.

    `clock` is that of the running iteration, so that what the job calls can mark phases on it.
    """

    clock: Clock = NullClock()
    passes: Iterator[None] | None = None

    def begin(self, passes: Iterator[None]) -> None:
        """Start a job; `passes` rests once before any work, so that the first step does it."""
        self.passes = passes
        next(passes)

    def step(self, clock: Clock) -> None:
        """Run the next iteration of the job; nothing once it has ended."""
        if self.passes is None:
            return
        self.clock = clock
        try:
            next(self.passes)
        except StopIteration:
            self.passes = None
            self.job_ended()
        finally:
            self.clock = NullClock()

    def job_ended(self) -> None:
        """Note the end of a job; nothing by default."""

    def done(self) -> bool:
        """Whether the job has ended."""
        return self.passes is None
