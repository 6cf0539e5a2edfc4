"""What a quantity beside time is: how it is named and shown, and where its values and effects come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perfsweep.pipelines.statistics.clocks import Clock
from perfsweep.pipelines.statistics.log_ratios import Rounds
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Effect, Manifest, SweepFolder


@dataclass(frozen=True)
class Withheld:
    """What stands in the place of a value that cannot be had: the reason, as one sentence."""

    reason: str


NO_ROUND = Withheld("no round is finished")


@dataclass(frozen=True)
class QuantityResult:
    """A quantity of an arm against that of its base.

    Attributes
    ----------
    ratio, low, high, p : of arm to base with its 95 % interval, and two-sided p; None where there is none
    value : the arm's own
    rounds : that measured it in both arms
    text : what a cell shows in place of the ratio; empty: the ratio
    withheld : why there is no ratio, as one sentence
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    value: float | None = None
    rounds: int = 0
    text: str = ""
    withheld: str = ""


@dataclass(frozen=True)
class Measured:
    """What quantities are read from: the timing trials that count, and whatever else the sweep left behind.

    `times` are those of the clock that judges the sweep, which is `clock`.
    """

    manifest: Manifest
    progress: Progress
    trials: Sequence[StoredTrial]
    times: Rounds
    folder: SweepFolder | None = None
    clock: Clock = Clock.WALL


class Source(Protocol):
    """Where the values and effects of one quantity in one sweep come from."""

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the value of an arm (id)."""
        ...

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Compare the arm of an effect with its base."""
        ...


@runtime_checkable
class Commented(Protocol):
    """A source with a few words on the values of arms (by id), such as what made them large."""

    comments: Mapping[str, str]


@runtime_checkable
class Bounded(Protocol):
    """A source whose values of arms have 95 % intervals of their own."""

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        """Give the ends of the interval of an arm (id); None where there is none."""
        ...


@dataclass(frozen=True)
class Quantity:
    """One quantity beside time; `perfsweep.pipelines.analysis.quantities.known` lists them.

    Attributes
    ----------
    key : what `report.columns` calls it, and the beginning of its columns in files and W&B
    heading : over the change in the table of effects
    arm_heading : over the values in the table of arms; ``{unit}`` stands for the workload's unit
    doc : one sentence, shown over the headings in the page
    source : makes what reads the values of a sweep; see `paired.per_trial` for those of single trials
    text : a value as people read it, with its unit
    remarks : sentences on where the values come from, for the notes
    of_wall_time : whether it holds wall time, whatever clock judges the sweep
    held_back_by : reasons of the verdict on an effect's time for which its change is held back too; without a
        time to compare (`NO_TIME`) that of every quantity is
    """

    key: str
    heading: str
    arm_heading: str
    doc: str
    source: Callable[[Measured], Source]
    text: Callable[[float], str]
    remarks: Callable[[Measured], Iterable[str]] = lambda measured: ()
    of_wall_time: bool = False
    held_back_by: frozenset[ReasonCode] = frozenset()

    def interval_text(self, ends: tuple[float, float] | None) -> str:
        """Two ends of an interval of a value, which no line breaks, and their unit once; empty of none."""
        if not ends:
            return ""
        low, high = map(self.text, ends)
        number, _, unit = low.partition(" ")
        shared = unit and high.endswith(f" {unit}")
        return f"{number if shared else low} .. {high}".replace(" ", "\u00a0")
