"""Records of a sweep by arm: how its trials ended, what they counted, and what the arm costs once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from statistics import median

from perfsweep.pipelines.analysis.counter_table import Counters, counters_of
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, Pack, TrialRecord
from perfsweep.workloads.api import Device


class ArmRecords:
    """The records that judge an arm: timing trials of the attempts that count, failures of all attempts.

    Parameters
    ----------
    packs : the packs whose timing trials count
    left_out : folders of timing trials that do not count
    """

    def __init__(
        self, progress: Progress, packs: Iterable[Pack], left_out: Container[str] = frozenset()
    ) -> None:
        self._timed: dict[str, list[StoredTrial]] = defaultdict(list)
        self._failed: dict[str, list[TrialRecord]] = defaultdict(list)
        self._untimed: dict[str, dict[Kind, TrialRecord]] = defaultdict(dict)
        for pack in packs:
            for arm in pack.arms:
                every = (trial.record for trial in progress.timings(pack.id, arm))
                self._failed[arm] += [record for record in every if record.outcome is not Outcome.OK]
            used = (trial for number in range(len(pack.orders)) for trial in progress.used(pack, number))
            for trial in used:
                if trial.record.outcome is Outcome.OK and str(trial.folder) not in left_out:
                    self._timed[trial.record.arm].append(trial)
        for (arm, kind), trial in progress.other.items():
            self._untimed[arm][kind] = trial.record

    def all(self, arm: str) -> list[TrialRecord]:
        """Timing trials first, those that count before those that failed, then the others."""
        return [*self.timed(arm), *self._failed.get(arm, ()), *self._untimed.get(arm, {}).values()]

    def timed(self, arm: str) -> list[TrialRecord]:
        """Timing trials that ended well and count."""
        return [trial.record for trial in self._timed.get(arm, ())]

    def every_timed(self) -> list[StoredTrial]:
        """Timing trials of all arms that ended well and count, with their folders."""
        return [trial for own in self._timed.values() for trial in own]

    def failed(self, arm: str) -> list[TrialRecord]:
        """Trials of any kind that did not end well, timing trials first."""
        return [record for record in self.all(arm) if record.outcome is not Outcome.OK]

    def median(self, arm: str, field: str) -> float | None:
        """Median of a field over the timing trials that ended well; None without any."""
        values = [float(getattr(record, field)) for record in self.timed(arm)]
        return median(values) if values else None

    def counters(self, arm: str) -> Counters | None:
        """What the arm's trials counted; None without a counting trial that ended well."""
        counting = self._untimed.get(arm, {}).get(Kind.COUNTING)
        if counting is None or counting.outcome is not Outcome.OK:
            return None
        return counters_of(counting, self.timed(arm))

    def cold_compile_s(self, arm: str) -> float | None:
        """Seconds of compiling with nothing compiled yet, which is how a counting trial starts."""
        counted = (self.counters(arm) or {}).get("compile_s")
        return counted if counted is not None else self.median(arm, "compile_s")

    def one_off_s(self, arm: str) -> float | None:
        """Seconds of set-up and first iteration, median, with all compiling done anew; None without times."""
        cold_s = self.cold_compile_s(arm) or 0.0
        costs = [
            record.setup_s + record.first_iteration_s + max(0.0, cold_s - record.compile_s)
            for record in self.timed(arm)
        ]
        return median(costs) if costs else None

    def device(self) -> Device:
        """The device that the trials ran on, as they recorded it."""
        for kinds in self._untimed.values():
            for record in kinds.values():
                if facts := record.environment.get("device"):
                    known = facts["capability"]
                    return Device(**{**facts, "capability": tuple(known) if known else None})
        return Device()
