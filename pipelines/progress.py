"""What of a sweep is done: the one rule for resume, status and collect.

The unit of progress is the round. A round is finished when every arm has a record of one attempt: pairs never mix
attempts, so an interrupted round is measured again whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.records import Kind, Manifest, Outcome, Pack, SweepFolder, TrialRecord, read_record
from workloads.errors import RecordError

GIVE_UP_AFTER = 2
"""An arm that failed in this many rounds of a pack is not started again in that pack."""

BAD = frozenset({Outcome.FAILED, Outcome.OOM, Outcome.TIMEOUT})


@dataclass(frozen=True)
class Found:
    """A trial's record and the folder it lies in."""

    folder: Path
    record: TrialRecord


@dataclass
class Progress:
    """Records of a sweep, by what they belong to; `damaged` files are named, never guessed."""

    timing: dict[tuple[str, int], dict[int, dict[str, Found]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    other: dict[tuple[str, Kind], Found] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def add(self, found: Found) -> None:
        """Note one more record."""
        record = found.record
        if record.kind is Kind.TIMING and record.round is not None:
            self.timing[record.pack, record.round][record.attempt][record.arm] = found
        else:
            self.other[record.arm, record.kind] = found

    def retired(self, pack: str, arms: Iterable[str]) -> dict[str, str]:
        """Arms that are not started again in a pack, each with the reason."""
        reasons = {}
        for arm in arms:
            outcomes = Counter(found.record.outcome for found in self._timings(pack, arm))
            found = self.other.get((arm, Kind.EVIDENCE))
            if outcomes[Outcome.UNSUPPORTED] or (found and found.record.outcome is Outcome.UNSUPPORTED):
                reasons[arm] = "unsupported"
            elif sum(outcomes[outcome] for outcome in BAD) >= GIVE_UP_AFTER:
                reasons[arm] = f"{outcomes.most_common(1)[0][0].value} {GIVE_UP_AFTER} times"
        return reasons

    def finished_attempt(self, pack: str, number: int, arms: Iterable[str]) -> int | None:
        """The latest attempt in which a round was finished, or None."""
        arms = tuple(arms)
        attempts = self.timing.get((pack, number), {})
        retired = self.retired(pack, arms)
        for attempt in sorted(attempts, reverse=True):
            if all(arm in attempts[attempt] or arm in retired for arm in arms):
                return attempt
        return None

    def unfinished_rounds(self, pack: Pack, retry: frozenset[Outcome] = frozenset()) -> list[int]:
        """Rounds still to be measured: unfinished ones, and those holding an outcome that is to be tried again."""
        return [number for number in range(len(pack.orders)) if not self._satisfied(pack, number, retry)]

    def _satisfied(self, pack: Pack, number: int, retry: frozenset[Outcome]) -> bool:
        attempt = self.finished_attempt(pack.id, number, pack.arms)
        if attempt is None:
            return False
        found = self.timing.get((pack.id, number), {}).get(attempt, {})
        return not any(trial.record.outcome in retry for trial in found.values())

    def next_attempt(self, pack: str, number: int) -> int:
        """A number that no attempt at a round has had."""
        return max(self.timing.get((pack, number), {}), default=-1) + 1

    def _timings(self, pack: str, arm: str) -> list[Found]:
        return [
            attempt[arm]
            for (owner, _), attempts in self.timing.items()
            if owner == pack
            for number, attempt in attempts.items()
            if arm in attempt and number == max(attempts)
        ]


def read_progress(folder: SweepFolder, manifest: Manifest, here: Mapping[str, str] | None = None) -> Progress:
    """All records of the arms of a manifest; a file that cannot be read is named in `damaged` and skipped.

    With `here`, facts of this machine, records of other facts count as missing: what was measured on another GPU or
    with another torch is measured anew.
    """
    progress = Progress()
    for arm in manifest.arms:
        for path, _, _, _ in folder.trial_dirs(arm.id):
            try:
                record = read_record(path)
            except RecordError as error:
                progress.damaged.append(str(error))
                continue
            if record is None or (record.code, record.method) != (manifest.sweep.code, manifest.sweep.measure.method):
                continue  # measured by other code, or in another way: not the same experiment
            if not any(record.keys.get(name, value) != value for name, value in (here or {}).items()):
                progress.add(Found(path, record))
    return progress
