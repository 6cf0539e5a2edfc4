"""Watching jobs until they have ended: their events as they come, and which need the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from perfsweep.pipelines.store.records import Event, SweepFolder
from perfsweep.slurm.jobs import Executor, JobState

POLL_S = 0.25
"""Time between looks at the packs' progress; Slurm itself is asked as seldom as the site profile says."""

COUNTS_S = 8.0
"""Time between two lines on how many jobs run and wait."""

HELD_POLLS = 40
"""Looks after which jobs that will not start by themselves are left to the user."""


LOOKS = 2
"""Files of events that are looked at every POLL_S, however many packs run: each look is a question to a file
system that all of a cluster share."""


class Tail:
    """The events of a pack that have not been shown."""

    def __init__(self, folder: SweepFolder, pack: str) -> None:
        self._folder, self.pack = folder, pack
        self._size = _size(folder.events_file(pack))
        self._next = folder.read_events(pack)[1] if self._size else 0

    def new(self) -> list[Event]:
        """Events since the last call; what was read is not read again, however many there are."""
        size = _size(self._folder.events_file(self.pack))
        if size == self._size:
            return []
        self._size, start = size, min(self._next, size)  # it may have been cut off
        events, self._next = self._folder.read_events(self.pack, start)
        return events


class Turns:
    """Tails of many packs: running ones take turns, and each that ends is looked at once more."""

    def __init__(self, tails: Iterable[Tail]) -> None:
        self._left = {tail.pack: tail for tail in tails}
        self._turn = 0

    def new(self, states: Mapping[str, JobState]) -> Iterator[Event]:
        """Read what some of the packs have noted since they were looked at."""
        over = [name for name in self._left if name in states and states[name].over]
        for tail in [self._left.pop(name) for name in over] + self._next(states):
            yield from tail.new()

    def _next(self, states: Mapping[str, JobState]) -> list[Tail]:
        running = [tail for name, tail in self._left.items() if states.get(name) is JobState.RUNNING]
        tails = running or [*self._left.values()]  # Slurm is asked less often than we look
        first = self._turn % max(1, len(tails))
        self._turn = first + LOOKS
        return [*tails[first:], *tails[:first]][:LOOKS]


class Held(Exception):
    """Nothing more will happen by itself; `notes` says why, by job."""

    def __init__(self, notes: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {note}" for name, note in notes.items()))
        self.notes = notes


def until_over(
    executor: Executor,
    tails: Iterable[Tail],
    on_event: Callable[[Event], None],
    on_counts: Callable[[str], None] = lambda text: None,
) -> dict[str, JobState]:
    """Follow all jobs to their end; the state of each.

    `on_counts` hears now and then how many of them run and wait, and what for, when that has changed.

    Raises
    ------
    Held
        All that is left waits for something that will not come by itself.
    """
    turns = Turns(tails)
    held_for = 0
    counts, counted = "", float("-inf")
    while True:
        states = executor.poll()
        for event in turns.new(states):
            on_event(event)
        if time.monotonic() - counted >= COUNTS_S and (new := executor.counts()) not in ("", counts):
            counts, counted = new, time.monotonic()
            on_counts(counts)
        left = [name for name, state in states.items() if not state.over]
        if not left:
            return states
        held = executor.held()
        held_for = held_for + 1 if held and set(left) <= set(held) else 0
        if held_for >= HELD_POLLS:
            notes = executor.notes()
            raise Held({name: notes.get(name, "held") for name in held})
        time.sleep(POLL_S)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
