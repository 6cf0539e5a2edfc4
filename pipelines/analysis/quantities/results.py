"""Effects and arms completed by the quantities that were chosen, and why some could not be had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pipelines.analysis.quantities.quantity import (
    Commented,
    Measured,
    Quantity,
    QuantityResult,
    Source,
    Withheld,
)
from pipelines.store.records import Effect

NAMED = 5
"""Arms that a sentence names."""


class QuantityResults:
    """The chosen quantities of one sweep; each source is made once."""

    def __init__(self, quantities: Sequence[Quantity], measured: Measured) -> None:
        self._sources: dict[str, Source] = {one.key: one.source(measured) for one in quantities}
        self._quantities, self._measured = quantities, measured
        self._labels = {arm.id: arm.label for arm in measured.manifest.arms}

    def of_effect(self, effect: Effect) -> dict[str, QuantityResult]:
        """Compare the arm of an effect with its base in each quantity."""
        return {key: source.of_effect(effect) for key, source in self._sources.items()}

    def of_arm(self, arm: str) -> dict[str, float]:
        """Give those values of an arm that could be had."""
        values = {key: source.of_arm(arm) for key, source in self._sources.items()}
        return {key: value for key, value in values.items() if not isinstance(value, Withheld)}

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
        return list(dict.fromkeys(lines))  # two columns may come from one price

    def _lacking(
        self, one: Quantity, effects: Mapping[str, Mapping[str, QuantityResult]], arms: Sequence[str]
    ) -> list[str]:
        reasons: dict[str, list[str]] = {}
        for arm in arms:
            if isinstance(value := self._sources[one.key].of_arm(arm), Withheld):
                reasons.setdefault(value.reason, []).append(self._labels[arm])
        for name, results in effects.items():
            if (why := results[one.key].withheld) and why not in reasons:
                reasons[why] = [name]
        return [
            f"{one.heading}{'' if len(names) == len(arms) else f' of {_list(names)}'}: {reason}"
            for reason, names in reasons.items()
        ]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
