"""Effects and arms completed by the quantities that were chosen, and why some could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from perfsweep.pipelines.analysis.judging import EffectResult
from perfsweep.pipelines.analysis.quantities.quantity import (
    NO_ROUND,
    Bounded,
    Commented,
    Measured,
    Quantity,
    QuantityResult,
    Source,
    Withheld,
)
from perfsweep.pipelines.statistics.clocks import Clock
from perfsweep.pipelines.statistics.verdicts import ReasonCode

NAMED = 5
"""Arms that a sentence names."""


class QuantityResults:
    """The chosen quantities of one sweep; each source is made once."""

    def __init__(self, quantities: Sequence[Quantity], measured: Measured) -> None:
        self._sources: dict[str, Source] = {one.key: one.source(measured) for one in quantities}
        self._quantities, self._measured = quantities, measured
        self._names = measured.manifest.arm_names

    def of_effect(self, result: EffectResult) -> dict[str, QuantityResult]:
        """Compare the arm of an effect with its base in each quantity, as far as its verdict lets."""
        found = {one.key: self._sources[one.key].of_effect(result.effect) for one in self._quantities}
        barred = (one for one in self._quantities if result.code in {ReasonCode.NO_TIME, *one.held_back_by})
        return found | {one.key: _held_back(found[one.key], result) for one in barred}

    def of_arm(self, arm: str) -> dict[str, float]:
        """Give those values of an arm that could be had."""
        values = {key: source.of_arm(arm) for key, source in self._sources.items()}
        return {key: value for key, value in values.items() if not isinstance(value, Withheld)}

    def bounds_of(self, arm: str) -> dict[str, tuple[float, float]]:
        """Give the intervals of those values of an arm that have one."""
        bounds = {k: one.bounds_of(arm) for k, one in self._sources.items() if isinstance(one, Bounded)}
        return {key: ends for key, ends in bounds.items() if ends}

    def comments_on(self, arm: str) -> dict[str, str]:
        """Give the words that sources have on values of an arm."""
        comments = {
            k: one.comments.get(arm, "") for k, one in self._sources.items() if isinstance(one, Commented)
        }
        return {key: text for key, text in comments.items() if text}

    def notes(self, effects: Mapping[str, Mapping[str, QuantityResult]], arms: Iterable[str]) -> list[str]:
        """Say of each quantity where it comes from, and why arms or effects lack it, a line for each reason.

        `effects` are results by the name of the effect and the key of the quantity, `arms` those that have
        finished rounds.
        """
        finished = list(arms)
        lines = (
            line
            for one in self._quantities
            for line in (*one.remarks(self._measured), *self._lacking(one, effects, finished))
        )
        return [*self._of_disturbed_time(), *dict.fromkeys(lines)]  # two columns may come from one price

    def _of_disturbed_time(self) -> list[str]:
        """Name the columns of wall time in a sweep whose wall time others disturbed."""
        headings = [one.heading for one in self._quantities if one.of_wall_time]
        if self._measured.clock is Clock.WALL or not headings:
            return []
        return [
            f"{', '.join(headings)}: from wall time, of which others had a part, though verdicts are by"
            " CPU time"
        ]

    def _lacking(
        self, one: Quantity, effects: Mapping[str, Mapping[str, QuantityResult]], arms: Sequence[str]
    ) -> list[str]:
        of_arms: dict[str, list[str]] = {}
        for arm in arms:
            if isinstance(value := self._sources[one.key].of_arm(arm), Withheld):
                of_arms.setdefault(value.reason, []).append(self._names[arm])
        of_effects: dict[str, list[str]] = {}
        for name, results in effects.items():
            why = results[one.key].withheld
            if why and why not in of_arms and why != NO_ROUND.reason:  # that the verdict says
                of_effects.setdefault(why, []).append(name)
        return [
            f"{one.heading}{'' if len(names) == among else f' of {_list(names)}'}: {reason}"
            for reasons, among in ((of_arms, len(arms)), (of_effects, len(effects)))
            for reason, names in reasons.items()
        ]


def _held_back(found: QuantityResult, result: EffectResult) -> QuantityResult:
    """Put the verdict in the place of a change that would claim what it does not; the arm's value stays."""
    if found.ratio is None:
        return found
    word = result.outcome or str(result.verdict)
    why = result.held_back or result.note
    withheld = f"not compared, since the verdict is {word}{f': {why}' if why else ''}"
    return replace(found, ratio=None, low=None, high=None, p=None, text=word, withheld=withheld)


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
