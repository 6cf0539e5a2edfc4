"""From log ratios to verdicts on all effects of a sweep: the one path that judging and simulations share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.statistics.estimates import Estimate, estimate
from pipelines.statistics.log_ratios import Rounds
from pipelines.statistics.verdicts import Judged, Verdict, decide_verdicts
from pipelines.store.records import AA, Effect


@dataclass(frozen=True)
class Decisions:
    """Estimates and verdicts by effect id; `floor` is how far two equal arms may lie apart, 0 where there are
    none."""

    estimates: dict[str, Estimate]
    verdicts: dict[str, Judged]
    floor: float = 0.0


def decide(
    times: Rounds, effects: Sequence[Effect], withheld: Mapping[str, Verdict], margin: float
) -> Decisions:
    """Judge effects against one another, corrected for their number (Holm 1979).

    Two equal arms are a control and not among the comparisons: how far they lie apart is the least that is
    called.

    Parameters
    ----------
    effects : those that have a time to compare
    withheld : verdicts, by id, of effects whose arms compute something else or did less work
    margin : log ratio within which there is no difference
    """
    ratios = {effect.id: times.log_ratios(effect) for effect in effects}
    measured = [effect for effect in effects if len(ratios[effect.id])]
    comparisons = sum(effect.design != AA for effect in measured)
    found = {
        effect.id: estimate(
            ratios[effect.id], 1 if effect.design == AA else comparisons, times.spread(effect)
        )
        for effect in measured
    }
    control = {effect.id: found[effect.id] for effect in measured if effect.design == AA}
    judged = {name: one for name, one in found.items() if name not in control}
    floor = max((_reach(one) for one in control.values()), default=0.0)
    withheld = {name: verdict for name, verdict in withheld.items() if name in judged}
    verdicts = {**decide_verdicts(control, margin=margin), **decide_verdicts(judged, withheld, margin, floor)}
    return Decisions(found, verdicts, floor)


def _reach(control: Estimate) -> float:
    interval = control.interval
    return max(abs(interval.low), abs(interval.high)) if interval else 0.0
