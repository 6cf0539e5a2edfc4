"""Jobs in this very process, one after the other: for debugging, with breakpoints where they belong."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from perfsweep.slurm.jobs import Executor, ExecutorContext, Job, JobState


class InProcessExecutor(Executor):
    """Runs one waiting job in each `poll`.

    Parameters
    ----------
    call : does what a job's command would do; its exceptions are the caller's to see
    """

    def __init__(self, call: Callable[[Job], None]) -> None:
        self._call = call
        self._waiting: deque[Job] = deque()
        self._states: dict[str, JobState] = {}

    @classmethod
    def of(cls, context: ExecutorContext) -> InProcessExecutor:
        """Make one that does what jobs' commands would do."""
        return cls(context.call)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs in order."""
        self._waiting.extend(jobs)
        self._states.update({job.name: JobState.PENDING for job in jobs})

    def poll(self) -> dict[str, JobState]:
        """Run the next job to its end."""
        if self._waiting:
            job = self._waiting.popleft()
            self._states[job.name] = JobState.FAILED  # unless it returns
            self._call(job)
            self._states[job.name] = JobState.ENDED
        return dict(self._states)

    def cancel(self, names: Iterable[str] | None = None) -> int:
        """Drop jobs that have not run, all by default; how many that were."""
        chosen = set(self._states if names is None else names)
        dropped = [job for job in self._waiting if job.name in chosen]
        self._waiting = deque(job for job in self._waiting if job.name not in chosen)
        self._states.update({job.name: JobState.CANCELLED for job in dropped})
        return len(dropped)
