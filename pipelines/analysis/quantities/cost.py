"""Cost: what the site charges for the time of the GPUs or nodes that an arm's trials used."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from perfsweep.pipelines.analysis.quantities.paired import per_trial
from perfsweep.pipelines.analysis.quantities.quantity import Measured, Quantity, Withheld
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Sweep, TrialRecord
from perfsweep.slurm.price import REMEDY, Price, parse_price

MILLION = 1e6
NO_PRICE = f"no price is given; give cluster.price: {REMEDY}"


def _cost(trial: StoredTrial, sweep: Sweep) -> float | Withheld:
    """What the timed region cost."""
    if sweep.price is None:
        return Withheld(NO_PRICE)
    price, record = parse_price(sweep.price), trial.record
    if (count := _used(record, price)) is None:
        return Withheld("the trials were measured without counting their GPUs")
    if not count:
        return Withheld(f"the price is {price}, and the trials used no GPU; give one per node-hour")
    return price.of(record.region_ns / 1e9, count)


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
        yield f"cost: at {price}, wall time of the {what} that a trial works on, without set-up and queue"


def cost_text(amount: float) -> str:
    """An amount of money with three digits."""
    return f"{amount:,.3g}" if amount < 1e3 else f"{amount:,.0f}"


COST = Quantity(
    key="cost",
    heading="cost",
    arm_heading="cost per million {unit}s",
    doc="price of the wall time of the GPUs or nodes that the trials used, against the base",
    source=per_trial("cost", _of_units(lambda record: MILLION)),
    text=cost_text,
    of_wall_time=True,
    remarks=_remarks,
)
JOB_COST = Quantity(
    key="job_cost",
    heading="cost of a job",
    arm_heading="cost of a whole job",
    doc="the same of a whole training or job, as the workload's configuration has it, without set-up",
    source=per_trial("cost of a job", _of_units(_job_units)),
    text=cost_text,
    of_wall_time=True,
    remarks=_remarks,
)
