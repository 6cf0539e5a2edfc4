"""How far each arm's own results are from the workload's oracles, whatever it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from workloads.api import Check, Evidence


@dataclass(frozen=True)
class OracleFigure:
    """One check of one arm: its value, the bound it may reach, and whether it holds. NaN never holds."""

    check: str
    value: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value <= self.bound


@dataclass(frozen=True)
class Quality:
    """All oracle figures of an arm, in the order in which its workload declares the checks."""

    arm: str
    figures: tuple[OracleFigure, ...]


def oracle_checks(checks: Sequence[Check]) -> list[Check]:
    """The checks that compare an arm with an oracle instead of with a reference."""
    return [check for check in checks if check.against == "oracle"]


def judge_quality(
    labels: Mapping[str, str], checks: Sequence[Check], evidence: Callable[[str], Evidence | None]
) -> tuple[Quality, ...]:
    """Figures of every arm (id to label) whose evidence holds any; arms without evidence are left out."""
    found = []
    for arm, label in labels.items():
        seen = evidence(arm)
        numbers = seen.numbers if seen else {}
        figures = tuple(
            OracleFigure(check.name, float(numbers[check.name]), float(check.bound))
            for check in oracle_checks(checks)
            if check.name in numbers and check.bound is not None
        )
        if figures:
            found.append(Quality(label, figures))
    return tuple(found)
