"""Leave-one-out beside one-at-a-time: which toggles help by themselves, and which only beside the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.analysis.judge import EffectResult
from pipelines.statistics.verdicts import Verdict

ALONE, BESIDE = "one_at_a_time", "leave_one_out"
_NO_HELP = (Verdict.NO_DIFFERENCE, Verdict.SLOWER)


@dataclass(frozen=True)
class Together:
    """One level measured twice: by itself on the reference, and by leaving it out of the best arm."""

    alone: EffectResult | None
    beside: EffectResult

    @property
    def reading(self) -> str:
        """What the two verdicts say together; nothing where either is open or its results changed."""
        verdicts = [
            result.verdict if result and not result.outcome else None for result in (self.alone, self.beside)
        ]
        match verdicts:
            case [Verdict.FASTER, Verdict.FASTER]:
                return "helps either way"
            case [before, Verdict.FASTER] if before in _NO_HELP:
                return "helps only beside the others"
            case [before, Verdict.FASTER] if before is not Verdict.DIFFERENT:
                return "helps beside the others; alone it is not known"
            case [Verdict.FASTER, after] if after in _NO_HELP:
                return "helps only alone: the others already do its work"
            case [before, after] if before in _NO_HELP and after in _NO_HELP:
                return "helps in neither"
        return ""


def together(effects: Sequence[EffectResult]) -> list[Together]:
    """Every level that was left out of a best arm, beside what it does alone; empty unless a sweep has both
    designs."""
    alone = {(r.effect.toggle, r.effect.level): r for r in effects if r.effect.design == ALONE}
    beside = [result for result in effects if result.effect.design == BESIDE]
    return [Together(alone.get((r.effect.toggle, r.effect.level)), r) for r in beside] if alone else []
