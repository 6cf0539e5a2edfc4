"""How elements stand: what Slurm and their own files say, for how long, and which nodes failed them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from perfsweep.slurm.client import Sighting, SlurmClient
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.inquiry import Key
from perfsweep.slurm.job_outcome import (
    ElementRecords,
    ExitRecord,
    Missing,
    Patience,
    Silence,
    Standing,
    judge,
)
from perfsweep.slurm.journal import Submission
from perfsweep.slurm.states import end_of


class Observer:
    """Judges elements, and remembers since when each has been over or missing.

    Parameters
    ----------
    folder : `submissions/` of the sweep
    """

    def __init__(self, folder: Path, patience: Patience) -> None:
        self._folder, self._patience = folder, patience
        self._silences: dict[Key, tuple[str, float, int]] = {}

    def standing(
        self, submission: Submission, index: int, seen: Sighting | Missing, own: ElementRecords, now: float
    ) -> Standing:
        """Judge an element of a submission by an answer and by its records."""
        key = submission.token, index
        if submission.refused is not None:
            return Standing()
        silence = Silence()
        if isinstance(seen, Sighting) and end_of(seen.state) is None:
            self._silences.pop(key, None)
        elif not own.done:
            silence = self._silence(key, _kind(seen), now)
            own = self._completed(own, submission, index, seen)
        return judge(seen, own, silence, now, self._patience, index in submission.cancelled)

    def _completed(
        self, own: ElementRecords, submission: Submission, index: int, seen: Sighting | Missing
    ) -> ElementRecords:
        """Look at the files that only matter where Slurm calls it over, or does not know it."""
        if seen is Missing.UNPROVEN:
            return own  # so it is of every pack while Slurm is silent
        if own.starts:
            own = replace(own, alive_at=last_beat(self._folder / submission.token, index))
        if seen is Missing.ELSEWHERE:
            return own
        return replace(own, output=tail_of(output_file(self._folder, submission, index)))

    def long_absent(self, key: Key, now: float) -> bool:
        """Count one more answer without a trace of this, and tell whether that is proof by now."""
        silence = self._silence(key, "gone", now)
        return silence.polls >= self._patience.polls and silence.seconds >= self._patience.file_s

    def _silence(self, key: Key, kind: str, now: float) -> Silence:
        """Count one more answer of this kind; another kind starts anew."""
        before, since, polls = self._silences.get(key, (kind, now, 0))
        since, polls = (since, polls + 1) if before == kind else (now, 1)
        self._silences[key] = kind, since, polls
        return Silence(now - since, polls)


def output_file(folder: Path, submission: Submission, index: int) -> Path:
    """Where Slurm writes what the batch script of an element prints."""
    return folder / f"{submission.array}_{index}_0_log.out"


def _kind(seen: Sighting | Missing) -> str:
    """What answers must agree in, so that they count together."""
    if isinstance(seen, Sighting):
        return "over"
    known = (Missing.UNPROVEN, Missing.ELSEWHERE)
    return seen.value if seen in known else "gone"


_NAME = re.compile(r"^(?P<index>\d+)\.(?P<what>start|end)-(?P<restarts>\d+)\.json$")

TAIL_BYTES = 4096
"""How much of the end of Slurm's output is read."""


class RecordFiles:
    """The records below `submissions/`; a file is read once, since what has its name is never changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, set[str]] = defaultdict(set)
        self._records: dict[str, dict[int, ElementRecords]] = defaultdict(dict)

    def read(self, token: str) -> dict[int, ElementRecords]:
        """Read the records of every element of an array; leftovers under temporary names mean nothing."""
        for name in _names(self._folder / token) - self._known[token]:
            if (match := _NAME.match(name)) and self._note(token, match):
                self._known[token].add(name)
        return self._records[token]

    def _note(self, token: str, match: re.Match[str]) -> bool:
        """Apply one file; False where it has to be read again."""
        index, restarts = int(match["index"]), int(match["restarts"])
        records = self._records[token]
        before = records.get(index, ElementRecords({}))
        started = replace(before, starts=max(before.starts, restarts + 1))
        if match["what"] == "end":
            record = _exit_record(self._folder / token / match.string)
            if record is None:
                return False
            started = replace(started, exits={**before.exits, restarts: record})
        records[index] = started
        return True


def last_beat(folder: Path, index: int) -> float | None:
    """Find when an element gave its last sign of life, in seconds since the epoch; None before the first."""
    try:
        return (folder / f"{index}.beat").stat().st_mtime
    except OSError:
        return None


def tail_of(output: Path) -> str | None:
    """Read the end of what Slurm's batch script printed; None where there is no such file."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return None


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()  # no element has started


def _exit_record(file: Path) -> ExitRecord | None:
    try:
        values = json.loads(file.read_text())
        return ExitRecord(int(values["status"]), tuple(values["signals"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or not whole yet


@dataclass(frozen=True)
class FailedNodes:
    """Nodes that a job is tried again without; not `known`: any of them may be the one that failed."""

    names: tuple[str, ...] = ()
    known: bool = True

    @classmethod
    def of(cls, client: SlurmClient, seen: Sighting) -> FailedNodes:
        """Find out which nodes of an element failed under it; all where Slurm does not say."""
        if not seen.node:
            return cls()
        if not any(sign in seen.node for sign in "[,"):
            return cls((seen.node,))
        try:
            failed = client.out_of_service(seen.job_id, seen.node)
            every = client.hostnames(seen.node)
        except ClusterError:
            return cls((seen.node,), known=False)
        return cls(tuple(failed or every), known=bool(failed))

    @property
    def words(self) -> str:
        """What a person should know about it, behind a sentence; empty where no node failed."""
        if not self.names:
            return ""
        why = "" if self.known else ": Slurm does not say which of its nodes failed"
        return f", without {' and '.join(self.names)}{why}"
