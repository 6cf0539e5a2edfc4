"""How well arms of several ranks use them: efficiency of an effect whose arm has more ranks than its base."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.store.records import Effect


class Work(StrEnum):
    """What an iteration does when ranks are added."""

    STRONG = "strong"  # the same in all: each rank does less
    WEAK = "weak"  # the same for each rank
    OTHER = ""


@dataclass(frozen=True)
class Scaling:
    """Ranks of an arm and its base, and the gain in speed by that of ranks: 1 is perfect.

    `low` and `high` bound the efficiency as the effect's interval does, None where it has none.
    """

    ranks: int
    base_ranks: int
    work: Work
    efficiency: float
    low: float | None
    high: float | None

    @property
    def more(self) -> float:
        """Times as many ranks as the base has."""
        return self.ranks / self.base_ranks


def ranks_of(records: ArmRecords, arm: str) -> int | None:
    """Ranks of an arm's timing trials; None without any."""
    timed = records.timed(arm)
    return (len(timed[0].ranks.nodes) if timed[0].ranks else 1) if timed else None


def scaling_of(
    effect: Effect, ratio: float | None, low: float | None, high: float | None, records: ArmRecords
) -> Scaling | None:
    """The scaling of an effect, from the ratio of its times and the ends of its interval.

    None where arm and base have equally many ranks, and for effects of many arms.
    """
    if ratio is None or effect.contrast or len(effect.pairs) != 1:
        return None
    ((arm, base),) = effect.pairs
    ranks, base_ranks = ranks_of(records, arm), ranks_of(records, base)
    if ranks is None or base_ranks is None or ranks <= base_ranks:
        return None
    more = ranks / base_ranks

    def efficiency(time: float | None) -> float | None:
        return 1 / time / more if time else None

    work = _work(_units_per_iteration(records, arm) / _units_per_iteration(records, base), more)
    return Scaling(ranks, base_ranks, work, 1 / ratio / more, efficiency(high), efficiency(low))


def _work(units: float, more: float) -> Work:
    """Tell the kinds apart by the units of an iteration, times those of the base."""
    named = {Work.STRONG: 1.0, Work.WEAK: more}
    return next((work for work, due in named.items() if math.isclose(units, due, rel_tol=0.01)), Work.OTHER)


def _units_per_iteration(records: ArmRecords, arm: str) -> float:
    return median(record.units / max(1, record.iterations) for record in records.timed(arm))
