"""Ask Slurm about the elements of a sweep: squeue, then accounting, then the controller's own list.

An empty answer proves nothing: a client may have asked another cluster, or a controller that has just been
started. That Slurm does not know an element follows only from the controller's word about its array.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from perfsweep.slurm.client import NoAccounting, Sighting, SlurmClient, Unreachable
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import Missing
from perfsweep.slurm.journal import Journal, Submission
from perfsweep.slurm.states import LIVE, end_of

MARK = "perfsweep:"
"""The comment of our jobs: this and the token of the submission."""

SETTLE_S = 5.0
"""sacct lags behind: nothing follows from it so soon after a submission."""

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
        return any(self.submission(s) is self._journal.submissions[token] for s in self._client.shown())

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
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(min(s.time for s in missing) - 60))
        arrays = [s.array for s in missing if s.array]
        try:
            accounted = self._client.accounted(arrays, since) if arrays else []
        except NoAccounting:
            accounted = []
        except ClusterError as error:
            self._say_once(
                f"accounting does not answer ({_first(error)}): how packs ended that the queue has"
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
            self._say_once(f"scontrol does not say whether job {submission.array} exists ({_first(error)})")
            return
        known = self._by_key(shown)
        others = any(token == submission.token for token, _ in known)
        # Of an array whose number nobody was told all jobs are shown, which say nothing about that number.
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
                # A row that names its elements incompletely covers all that no other row names.
                covered = submission.open if sighting.index is None else [sighting.index]
                for index in covered:
                    if sighting.index is not None or (submission.token, index) not in found:
                        found[submission.token, index] = sighting
        return found

    def _wonder_at(self, word: str) -> None:
        """Say once that Slurm uses a word nobody here knows; such a job counts as unfinished."""
        if word not in LIVE and end_of(word) is None:
            self._say_once(f"Slurm calls a job {word}, which is new here: it counts as unfinished")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def _missing(submission: Submission, answer: Answer) -> list[int]:
    return [index for index in submission.open if isinstance(answer.get((submission.token, index)), Missing)]


def _first(error: ClusterError) -> str:
    return (str(error).splitlines() or ["no reason given"])[0]
