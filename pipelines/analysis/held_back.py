"""Effects about which nothing is said: every trial was disturbed, or so few rounds decide nothing."""

from __future__ import annotations

import functools

import polars as pl

from perfsweep.pipelines.plan.power import USELESS, Power, power, scaled
from perfsweep.pipelines.statistics.clocks import Clock, ClockChoice, Conditions, choose_clock
from perfsweep.pipelines.statistics.verdicts import Judgement, ReasonCode, Verdict
from perfsweep.pipelines.store.records import Effect, Manifest


def clock_of(used: pl.DataFrame) -> ClockChoice:
    """Choose the clock of all effects from the timing trials that count."""
    rows = used.select("label", "crowded", "alone").iter_rows()
    return choose_clock([Conditions(*row) for row in rows])


class HoldingBack:
    """Holds verdicts of one sweep back.

    Parameters
    ----------
    used : the timing trials that count
    clock : the one that is asked; of arms that compute alone, crowded trials say something in CPU time
    """

    def __init__(self, manifest: Manifest, used: pl.DataFrame, clock: Clock) -> None:
        self._manifest = manifest
        excused = pl.col("crowded") & pl.col("alone") if clock is Clock.CPU else pl.lit(False)
        sound = used.filter((pl.col("disturbed") == "") | excused)
        self._sound = set(sound["arm"].to_list())
        self._disturbed = set(used["arm"].to_list()) - self._sound

    def of(self, effect: Effect, rounds: int) -> Judgement | None:
        """Judge an effect whose times say nothing, of so many rounds or generations; None of any other."""
        if self._manifest.sweep.measure.look:
            reason = "only a look (measure.look)"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ONLY_A_LOOK)
        if effect.weights.keys() <= self._disturbed:
            reason = "every trial of its arms was disturbed"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.ALL_DISTURBED)
        if scaled(effect, self._power(rounds)) > USELESS:
            reason = "one round has no interval" if rounds == 1 else f"{rounds} rounds decide nothing"
            return Judgement(Verdict.HELD_BACK, None, reason=reason, code=ReasonCode.TOO_FEW_ROUNDS)
        return None

    @functools.cache  # noqa: B019 - lives as long as the comparison
    def _power(self, rounds: int) -> Power:
        return power(self._manifest, replications=rounds)
