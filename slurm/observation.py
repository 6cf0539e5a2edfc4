"""How elements stand: what Slurm and their own files say, and for how long they have been silent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from perfsweep.slurm.client import Sighting
from perfsweep.slurm.element_records import last_beat, tail_of
from perfsweep.slurm.inquiry import Key
from perfsweep.slurm.job_outcome import ElementRecords, Missing, Patience, Silence, Standing, judge
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
