"""How far each arm's own results are from the workload's oracles, whatever it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfsweep.workloads.api import Check, Evidence


@dataclass(frozen=True)
class OracleDeviation:
    """One check of one arm against the oracle: its value and the bound it may reach. NaN never holds."""

    check: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value <= self.bound


@dataclass(frozen=True)
class Quality:
    """All deviations of an arm from its oracles, in the order in which its workload declares the checks."""

    arm: str
    deviations: tuple[OracleDeviation, ...]


def judge_quality(
    labels: Mapping[str, str], checks: Sequence[Check], evidence: Callable[[str], Evidence | None]
) -> tuple[Quality, ...]:
    """Judge every arm (id to label) whose evidence holds a deviation; arms without evidence are left out."""
    judged = []
    for arm, label in labels.items():
        own = evidence(arm)
        numbers = own.numbers if own else {}
        deviations = tuple(
            OracleDeviation(check.name, float(numbers[check.name]), float(check.bound))
            for check in checks
            if check.against == "oracle" and check.name in numbers and check.bound is not None
        )
        if deviations:
            judged.append(Quality(label, deviations))
    return tuple(judged)
