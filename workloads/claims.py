"""The sentences of a report as claims: one maker for each kind of claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsweep.workloads.declarations import Claim, LevelValue

Arm = Mapping[str, LevelValue]


@dataclass(frozen=True)
class Report:
    """Makes claims of a report: of a section of it, in its own words, about some arms."""

    source: str

    def claim(self, section: str, text: str, *arms: Arm, **judged: Any) -> Claim:
        """A claim that is judged as its fields say."""
        return Claim(text, self.source, section, arms, **judged)

    def word(self, word: str, section: str, text: str, *arms: Arm, **more: Any) -> Claim:
        """A claim of a size in words."""
        return self.claim(section, text, *arms, kind="qualitative", word=word, **more)

    def less_memory(self, section: str, text: str, *arms: Arm, **more: Any) -> Claim:
        """A claim that memory is saved."""
        return self.claim(section, text, *arms, kind="memory", high=1.0, **more)

    def fact(
        self,
        section: str,
        text: str,
        arm: Arm,
        figure: str,
        low: float | None = None,
        high: float | None = None,
        **more: Any,
    ) -> Claim:
        """A claim that a figure of an arm lies between bounds."""
        return self.claim(section, text, arm, kind="predicate", figure=figure, low=low, high=high, **more)

    def about(self, section: str, text: str, arm: Arm, figure: str, value: float, **more: Any) -> Claim:
        """A claim that a figure of an arm is about `value`: within ten per cent."""
        return self.fact(section, text, arm, figure, 0.9 * value, 1.1 * value, **more)
