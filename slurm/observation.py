"""The states of elements: what Slurm and their own files say, for how long, and which nodes failed them.

Slurm is asked by squeue, then by accounting, then by the controller's own list. An empty answer proves
nothing: a client may have asked another cluster, or a controller that has just been started. That Slurm does
not know an element follows only from the controller's word about its array.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from perfsweep.slurm.client import Forbidden, NoAccounting, Sighting, SlurmClient, Unreachable
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import (
    ElementRecords,
    ExitRecord,
    Missing,
    Patience,
    Silence,
    Standing,
    judge,
)
from perfsweep.slurm.journal import Journal, Submission
from perfsweep.slurm.states import ELSEWHERE, LIVE, end_of

MARK = "perfsweep:"
"""The comment of our jobs: this and the token of the submission."""

SETTLE_S = 5.0
"""sacct is late: nothing follows from it so soon after a submission."""

ARRAYS_A_TIME = 4
"""Arrays that the controller is asked about in one look; the others wait for the next."""

Key = tuple[str, int]
Answer = dict[Key, Sighting | Missing]


class Inquiry:
    """What one cluster says about the submissions of a journal.

    Parameters
    ----------
    say : takes sentences for the person who watches
    """

    def __init__(
        self, client: SlurmClient, journal: Journal, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._client, self._journal, self._say, self._clock = client, journal, say, clock
        self._said: set[str] = set()
        self._next = 0

    def ask(self) -> Answer:
        """What is known of every open element.

        Raises
        ------
        ClusterError
            squeue did not answer: nothing follows.
        """
        here = self._client.cluster()
        ours = [s for s in self._open() if s.cluster in (None, here)]
        known = self._by_key(self._client.queue())
        answer: Answer = dict(known)
        for submission in self._open():
            foreign = submission not in ours
            if foreign:
                self._say_once(
                    f"packs of this sweep are on cluster {submission.cluster}, and this is {here}: its Slurm"
                    " knows nothing of them"
                )
            for index in submission.open:
                answer.setdefault(
                    (submission.token, index), Missing.ELSEWHERE if foreign else Missing.UNPROVEN
                )
        settled = [s for s in ours if s.array is not None and abs(self._clock() - s.time) > SETTLE_S]
        if missing := [s for s in settled if _missing(s, answer)]:
            self._account_for(missing, answer)
        return answer

    def carries(self, token: str) -> bool:
        """Whether the controller knows any job of a submission, queued or just ended.

        Raises
        ------
        ClusterError
            There was no usable answer: nothing follows.
        """
        try:
            seen = self._client.shown()
        except Forbidden:
            seen = self._client.queue()  # by the same controller, which has answered so before
        return any(self.submission(s) is self._journal.submissions[token] for s in seen)

    def submission(self, sighting: Sighting) -> Submission | None:
        """The submission a job of Slurm belongs to, by its token: job numbers may be given out again."""
        for text in (sighting.comment.removeprefix(MARK), sighting.name.rpartition(".")[2]):
            if text in self._journal.submissions:
                return self._journal.submissions[text]
        return None

    def _open(self) -> list[Submission]:
        return self._journal.open_submissions()

    def _account_for(self, missing: list[Submission], answer: Answer) -> None:
        """Ask sacct for ends, and then the controller for what it still knows."""
        arrays = [s.array for s in missing if s.array]
        try:
            accounted = self._client.accounted(arrays) if arrays else []
        except NoAccounting:
            accounted = []
        except ClusterError as error:
            self._say_once(
                f"accounting does not answer ({error.first_line}): how packs ended that the queue has"
                " forgotten is not known until it does"
            )
            return
        for key, sighting in self._by_key(accounted).items():
            if isinstance(answer.get(key), Missing) and end_of(sighting.state) is not None:
                answer[key] = sighting
        left = [s for s in missing if _missing(s, answer)]
        for submission in self._some(left):
            self._ask_controller(submission, answer)

    def _some(self, left: list[Submission]) -> list[Submission]:
        """Take turns where there are many."""
        if len(left) <= ARRAYS_A_TIME:
            return left
        first = self._next % len(left)
        self._next = first + ARRAYS_A_TIME
        return [*left[first:], *left[:first]][:ARRAYS_A_TIME]

    def _ask_controller(self, submission: Submission, answer: Answer) -> None:
        try:
            shown = self._client.shown(submission.array or None)
        except Unreachable:
            return  # no proof, and the next squeue says so
        except ClusterError as error:
            said = f"scontrol does not say whether job {submission.array} exists ({error.first_line})"
            self._say_once(said)
            return
        known = self._by_key(shown)
        others = any(token == submission.token for token, _ in known)
        # Of an array whose number is unknown all jobs are shown, which say nothing about that number.
        reissued = bool(shown and submission.array)
        absent = Missing.TAKEN_OUT if others else Missing.REISSUED if reissued else Missing.FORGOTTEN
        for index in _missing(submission, answer):
            key = submission.token, index
            answer[key] = known.get(key, absent)

    def _by_key(self, sightings: Iterable[Sighting]) -> dict[Key, Sighting]:
        found: dict[Key, Sighting] = {}
        for sighting in sightings:
            if submission := self.submission(sighting):
                self._wonder_at(sighting.state)
                # A row that names its elements incompletely covers all that no other row names, and where the
                # clusters of a federation answer together that of the one which has the job counts.
                covered = submission.open if sighting.index is None else [sighting.index]
                exact = sighting.index is not None and sighting.state != ELSEWHERE
                for index in covered:
                    if exact or (submission.token, index) not in found:
                        found[submission.token, index] = sighting
        return found

    def _wonder_at(self, word: str) -> None:
        """Say once that Slurm uses a word that is unknown here; such a job counts as unfinished."""
        if word not in LIVE and end_of(word) is None:
            self._say_once(f"Slurm calls a job {word}, which is new here: it counts as unfinished")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def _missing(submission: Submission, answer: Answer) -> list[int]:
    return [index for index in submission.open if isinstance(answer.get((submission.token, index)), Missing)]


class Observer:
    """Judges elements, and remembers since when each has been over or missing.

    Parameters
    ----------
    folder : `submissions/` of the sweep
    """

    def __init__(self, folder: Path, patience: Patience) -> None:
        self._folder, self._patience = folder, patience
        self._silences: dict[Key, tuple[str, float, int]] = {}
        self._beats: dict[Key, tuple[float, float]] = {}

    def standing(
        self, submission: Submission, index: int, seen: Sighting | Missing, own: ElementRecords, now: float
    ) -> Standing:
        """Judge an element of a submission by an answer and by its records."""
        key = submission.token, index
        if submission.refused is not None:
            return Standing()
        if isinstance(seen, Sighting) and seen.state == ELSEWHERE:
            seen = Missing.ELSEWHERE
        silence = Silence()
        if isinstance(seen, Sighting) and end_of(seen.state) is None:
            self._silences.pop(key, None)
        elif not own.done:
            silence = self._silence(key, _kind(seen), now)
            own = self._completed(own, submission, index, seen, now)
        return judge(seen, own, silence, now, self._patience, index in submission.cancelled)

    def _completed(
        self, own: ElementRecords, submission: Submission, index: int, seen: Sighting | Missing, now: float
    ) -> ElementRecords:
        """Look at the files that only matter where Slurm calls it over, or does not know it."""
        if seen is Missing.UNPROVEN:
            return own  # so it is of every pack while Slurm is silent
        if own.starts:
            own = replace(own, alive_at=self._alive_at(submission.token, index, now))
        if seen is Missing.ELSEWHERE:
            return own
        return replace(own, output=tail_of(output_file(self._folder, submission, index)))

    def _alive_at(self, token: str, index: int, now: float) -> float | None:
        """When a sign of life was first seen as it is, by our clock: nodes and file systems go by theirs."""
        try:
            beat = (self._folder / token / f"{index}.beat").stat().st_mtime
        except OSError:
            return None  # before the first
        if self._beats.get((token, index), (None, now))[0] != beat:
            self._beats[token, index] = beat, now
        return self._beats[token, index][1]

    def long_absent(self, key: Key, now: float) -> bool:
        """Count one more answer without a trace of this, and tell whether that is proof by now."""
        silence = self._silence(key, "gone", now)
        return silence.polls >= self._patience.polls and silence.seconds >= self._patience.file_s

    def _silence(self, key: Key, kind: str, now: float) -> Silence:
        """Count one more answer of this kind; another kind starts again."""
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
        return ExitRecord(int(values["status"]), tuple(values["signals"]), values.get("said", ""))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not ours, or not whole yet


def failed_nodes(client: SlurmClient, seen: Sighting) -> tuple[tuple[str, ...], str]:
    """Nodes of an element that a job is tried again without, all where Slurm does not say which failed.

    The words are what the user should know about it, after a sentence; empty where no node failed.
    """
    if not seen.node:
        return (), ""
    names, known = (seen.node,), True
    if any(sign in seen.node for sign in "[,"):
        try:
            failed = client.out_of_service(seen.job_id, seen.node)
            names, known = tuple(failed or client.hostnames(seen.node)), bool(failed)
        except ClusterError:
            known = False
    why = "" if known else ": Slurm does not say which of its nodes failed"
    return names, f", without {' and '.join(names)}{why}"


class SteadyClock:
    """Seconds since the epoch as they were when it was made, and steadily on from there.

    A process that waits until a moment of the time of day waits for days if the clock is set back by days.
    """

    def __init__(self) -> None:
        self._made, self._began = time.time(), time.monotonic()

    def __call__(self) -> float:
        """What time it is."""
        return self._made + time.monotonic() - self._began
