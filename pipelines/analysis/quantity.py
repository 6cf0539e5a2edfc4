"""Quantities other than time: where their values come from, how rounds pair them, and those of single trials.

Single trials tell wall and CPU time, money by the site's price for GPUs or nodes, and energy by counters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Protocol

from perfsweep.pipelines.analysis.effect_result import QuantityResult
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.statistics.verdicts import ReasonCode
from perfsweep.pipelines.store.needed_once import read_idle
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Effect, Manifest, Sweep, SweepFolder, TrialRecord
from perfsweep.pipelines.units import duration
from perfsweep.slurm.site import PRICE_REMEDY, Price, parse_price
from perfsweep.workloads.errors import RecordError


@dataclass(frozen=True)
class Withheld:
    """Replaces a value that cannot be had: the reason, as one sentence."""

    reason: str


NO_ROUND = Withheld("no round is finished")


@dataclass(frozen=True)
class Measured:
    """What quantities are read from: the timing trials that count, and other files of the sweep."""

    manifest: Manifest
    progress: Progress
    trials: Sequence[StoredTrial]
    times: Rounds
    folder: SweepFolder | None = None


class Source(Protocol):
    """Where the values and effects of one quantity in one sweep come from."""

    comments: Mapping[str, str] = MappingProxyType({})
    """A few words on the values of arms (by id), such as what made them large."""

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the value of an arm (id)."""
        ...

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Compare the arm of an effect with its base."""
        ...

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        """Give the ends of the 95 % interval of an arm's value by itself; None where there is none."""
        return None


@dataclass(frozen=True)
class Quantity:
    """One quantity other than time; `perfsweep.pipelines.analysis.quantity_results` lists them.

    Attributes
    ----------
    key : what `report.columns` calls it, and the beginning of its columns in files and W&B
    heading : over the change in the table of effects
    arm_heading : over the values in the table of arms; ``{unit}`` is replaced by the workload's unit
    doc : one sentence, shown over the headings in the page
    source : makes what reads the values of a sweep; see `per_trial` for those of single trials
    text : a value as people read it, with its unit
    remarks : sentences on where the values come from, for the notes
    held_back_by : reasons of the verdict on an effect's time for which its change is too noisy too; without a
        time to compare (`NO_TIME`) that of every quantity is
    """

    key: str
    heading: str
    arm_heading: str
    doc: str
    source: Callable[[Measured], Source]
    text: Callable[[float], str]
    remarks: Callable[[Measured], Iterable[str]] = lambda measured: ()
    held_back_by: frozenset[ReasonCode] = frozenset()

    def interval_text(self, ends: tuple[float, float] | None) -> str:
        """Two ends of an interval of a value, which no line breaks, and their unit once; empty of none."""
        if not ends:
            return ""
        low, high = map(self.text, ends)
        number, _, unit = low.partition(" ")
        shared = unit and high.endswith(f" {unit}")
        return f"{number if shared else low} .. {high}".replace(" ", "\u00a0")


Read = Callable[[StoredTrial, Sweep], float | Withheld]
"""Reads the value of one timing trial, or says why there is none."""


def per_trial(name: str, read: Read) -> Callable[[Measured], Source]:
    """Make the source of a quantity that `read` finds in single trials; `name` is for messages."""
    return lambda measured: Paired(measured, name, read)


def recorded(key: str) -> Read:
    """Read a quantity of the record, for each of its units."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        if (value := trial.record.quantities.get(key)) is None:
            return Withheld(trial.record.withheld.get(key) or "the trials were measured without it")
        return value / trial.record.units

    return read


class Paired(Source):
    """Values of timing trials, compared within rounds; an arm has the median of its rounds."""

    def __init__(self, measured: Measured, name: str, read: Read) -> None:
        self._values: dict[str, list[float]] = {}
        self._reasons: dict[str, str] = {}
        cells = []
        for trial in measured.trials:
            record = trial.record
            value = read(trial, measured.manifest.sweep)
            if isinstance(value, Withheld):
                self._reasons[record.arm] = value.reason
                continue
            self._values.setdefault(record.arm, []).append(value)
            if value > 0 and record.round is not None:  # zero has no ratio
                cells.append(Cell(record.pack, record.round, record.draw, record.arm, value))
        self._rounds = Rounds(cells, name)
        self._cells: dict[str, list[Cell]] = {}
        for cell in cells:
            self._cells.setdefault(cell.arm, []).append(cell)
        self._name = name

    def of_arm(self, arm: str) -> float | Withheld:
        """Give the median of an arm's rounds."""
        values = self._values.get(arm)
        if values:
            return median(values)
        return Withheld(self._reasons[arm]) if arm in self._reasons else NO_ROUND

    def of_effect(self, effect: Effect) -> QuantityResult:
        """Estimate the ratio of an arm to its base from log ratios within rounds."""
        value = self.of_arm(effect.pairs[0][0])
        own = None if isinstance(value, Withheld) else value
        for arm in effect.weights:
            if arm not in self._cells:
                return QuantityResult(value=own, withheld=self._reason(arm))
        estimate = self._rounds.estimate(effect)
        if not estimate.n:
            return QuantityResult(value=own, withheld=estimate.reason)
        low, high = estimate.interval.ratios if estimate.interval else (None, None)
        ratio = math.exp(estimate.log_ratio)
        return QuantityResult(ratio, low, high, estimate.p, own, estimate.rounds)

    def positive_cells(self) -> dict[str, list[Cell]]:
        """List the cells of arms that are above zero in every round."""
        return {arm: own for arm, own in self._cells.items() if all(value > 0 for value in self._values[arm])}

    def _reason(self, arm: str) -> str:
        value = self.of_arm(arm)
        return value.reason if isinstance(value, Withheld) else f"{self._name} is zero, which has no ratio"


MILLION = 1e6
NO_PRICE = f"no price is given; give cluster.price: {PRICE_REMEDY}"


def _cost(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
    """What the timed region cost."""
    if sweep.price is None:
        return Withheld(NO_PRICE)
    price, record = parse_price(sweep.price), trial.record
    if (count := _used(record, price)) is None:
        return Withheld("the trials were measured without counting their GPUs")
    if not count:
        return Withheld(f"the price is {price}, and the trials used no GPU; give one per node-hour")
    return price.of(record.time_ns / 1e9, count)


def _used(record: TrialRecord, price: Price) -> int | None:
    """GPUs or nodes of a trial; None where its record does not tell."""
    if price.per == "node":
        return len(set(record.ranks.nodes)) if record.ranks else 1
    devices = record.quantities.get("devices")
    return None if devices is None else int(devices)


def _of_units(units: Callable[[TrialRecord], float | Withheld]) -> Callable[..., float | Withheld]:
    """Read the cost of so many units of a trial's work."""

    def read(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
        cost, wanted = _cost(trial, sweep), units(trial.record)
        if isinstance(cost, Withheld):
            return cost
        return wanted if isinstance(wanted, Withheld) else cost / trial.record.units * wanted

    return read


def _job_units(record: TrialRecord) -> float | Withheld:
    units = record.quantities.get("job_units")
    return Withheld("the workload does not say how long a whole job is") if units is None else units


def _remarks(measured: Measured) -> Iterator[str]:
    if measured.manifest.sweep.price is not None:
        price = parse_price(measured.manifest.sweep.price)
        what = "GPUs" if price.per == "GPU" else "nodes"
        yield f"cost: at {price}, time of the {what} that a trial works on, without set-up and queue"


def cost_text(amount: float) -> str:
    """An amount of money with three digits."""
    return f"{amount:,.3g}" if amount < 1e3 else f"{amount:,.0f}"


COST = Quantity(
    key="cost",
    heading="cost",
    arm_heading="cost per million {unit}s",
    doc="price of the time of the GPUs or nodes that the trials used, against the base",
    source=per_trial("cost", _of_units(lambda record: MILLION)),
    text=cost_text,
    remarks=_remarks,
)
JOB_COST = Quantity(
    key="job_cost",
    heading="cost of a job",
    arm_heading="cost of a whole job",
    doc="the same of a whole training or job, as the workload's configuration has it, without set-up",
    source=per_trial("cost of a job", _of_units(_job_units)),
    text=cost_text,
    remarks=_remarks,
)

ENERGY_J = "energy_j"
"""What records call the joules of a region, see `perfsweep.pipelines.trial.machine.energy`."""


def energy_text(joules: float) -> str:
    """An energy with three digits, in the unit that reads best."""
    for unit, size in (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6)):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules * 1e9:.3g} nJ"


def _counter_remarks(measured: Measured) -> Iterator[str]:
    """Say whose counters these are, and compare the power at rest with that of the baseline."""
    counted = [trial.record for trial in measured.trials if ENERGY_J in trial.record.quantities]
    if not counted:
        return
    facts = [record.environment.get("energy") or {} for record in counted]
    sources = ", ".join(dict.fromkeys(one["source"] for one in facts if "source" in one))
    counters = dict.fromkeys(name for one in facts for name in one.get("counters", ()))
    yield f"energy: from the counters of {sources or 'the machine'} ({', '.join(counters)}), idling included"
    reference = next(iter(measured.manifest.sweep.references.values()))
    drawn_w = [
        record.quantities[ENERGY_J] / (record.region_ns / 1e9)
        for record in counted
        if record.arm == reference
    ]
    drawn = f"; the baseline drew {median(drawn_w):.3g} W in its regions" if drawn_w else ""
    yield from (f"idle power: {line}{drawn}" for line in _idle(measured))


def _idle(measured: Measured) -> Iterator[str]:
    """Sum up what packs measured at rest: the median of the packs that could, else why none could."""
    if measured.folder is None:
        return
    found, problems = [], []
    for pack in measured.manifest.packs:
        try:
            found.append(read_idle(measured.folder, pack.id))
        except RecordError as error:
            problems.append(str(error))
    watts = [sum(one.watts.values()) for one in found if one and one.watts]
    reasons = [*dict.fromkeys(one.withheld for one in found if one and one.withheld), *problems]
    if watts:
        packs = f", median of {len(watts)} packs" if len(watts) > 1 else ""
        yield f"{median(watts):.3g} W with no trial running{packs}"
    elif reasons:
        yield f"not known: {reasons[0]}"


ENERGY = Quantity(
    key="energy",
    heading="energy",
    arm_heading="energy per {unit}",
    doc="joules of the devices that the counters cover, GPUs or processor packages, against the base",
    source=per_trial("energy", recorded(ENERGY_J)),
    text=energy_text,
    remarks=_counter_remarks,
)


def _cpu_ns(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
    return trial.record.cpu_ns_per_unit or Withheld("the trials took no CPU time")


WALL = Quantity(
    key="wall",
    heading="wall time",
    arm_heading="wall time per {unit}",
    doc="the same in wall time, with what others had of the core",
    source=per_trial("wall time", lambda trial, sweep: trial.record.wall_ns_per_unit),
    text=duration,
)
CPU = Quantity(
    key="cpu",
    heading="CPU time",
    arm_heading="CPU time per {unit}",
    doc="the same in processor time of the process, all of its threads together",
    source=per_trial("CPU time", _cpu_ns),
    text=duration,
)
