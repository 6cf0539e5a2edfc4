"""Cost: the price of the time of what the trials used, and when it cannot be had."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantities.cost import cost_text
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.records import RankFigures

Costed = Callable[..., Comparison]
REGION_S, UNITS = 36.0, 1000.0


@pytest.fixture
def costed(command: Callable) -> Costed:
    """A comparison of two arms whose regions of 1000 units take 36 s, and 18 s in the arm, at a price."""

    def run(price: str | None, **fields: object) -> Comparison:
        sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
        sweep.report, sweep.cluster.price = ReportConfig(["cost", "job_cost"]), price
        folder, manifest = simulated(sweep, cost)
        ((arm, _),) = manifest.effects[0].pairs
        for record in folder.path.glob("trials/*/*-r*/record.json"):
            seconds = REGION_S / 2 if arm in record.parts else REGION_S
            own = {"quantities": {"devices": 2.0, "job_units": 5e5}, **fields}
            change(record, region_ns=round(seconds * 1e9), units=UNITS, **own)
        return compared(folder, manifest)

    return run


def values(comparison: Comparison, key: str) -> list[float]:
    """Of the base and of the arm."""
    found = {one.label: one.quantities.get(key) for one in comparison.arms}
    return [value for _, value in sorted(found.items()) if value is not None]


def test_a_million_units_on_two_gpus_cost_their_hours_at_the_price(costed: Costed) -> None:
    comparison = costed("2.5 EUR/GPU-hour")
    # 36 s for 1000 units are 10 hours for a million, on two GPUs.
    assert values(comparison, "cost") == pytest.approx([10 * 2 * 2.5, 5 * 2 * 2.5])
    (effect,) = comparison.effects
    assert effect.quantities["cost"].ratio == pytest.approx(0.5)
    assert effect.quantities["cost"].rounds == 6
    said = [note for note in comparison.notes if "at 2.5 EUR per GPU-hour, time of the GPUs" in note]
    assert len(said) == 1  # although two columns come from that price


def test_a_whole_job_costs_as_many_units_as_it_has(costed: Costed) -> None:
    assert values(costed("2.5/GPU-hour"), "job_cost") == pytest.approx([25.0, 12.5])


def test_nodes_are_counted_by_their_names(costed: Costed) -> None:
    ranks = dataclasses.asdict(RankFigures(nodes=("n1", "n1", "n2", "n2"), region_ns=(1, 1, 1, 1)))
    assert values(costed("1/node-hour", ranks=ranks), "cost") == pytest.approx([20.0, 10.0])
    assert values(costed("1/node-hour", ranks=None), "cost") == pytest.approx([10.0, 5.0])


@pytest.mark.parametrize(
    ("price", "quantities", "reason"),
    [
        (None, {"devices": 1.0}, "cost: no price is given; give cluster.price: write it as 2.5/GPU-hour"),
        ("2/GPU-hour", {"devices": 0.0}, "the trials used no GPU; give one per node-hour"),
        ("2/GPU-hour", {}, "cost: the trials were measured without counting their GPUs"),
        ("2/node-hour", {}, "cost of a job: the workload does not say how long a whole job is"),
    ],
    ids=["no price", "no GPU", "older records", "no length"],
)
def test_what_cannot_be_priced_says_why_and_the_time_stays(
    costed: Costed, price: str | None, quantities: dict[str, float], reason: str
) -> None:
    comparison = costed(price, quantities=quantities)
    assert sum(reason in note for note in comparison.notes) >= 1
    assert comparison.effects[0].ratio is not None


def test_a_reason_that_two_columns_share_is_said_of_each(costed: Costed) -> None:
    notes = [note for note in costed(None).notes if "no price is given" in note]
    assert [note.partition(":")[0] for note in notes] == ["cost", "cost of a job"]


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.012345, "0.0123"), (25.0, "25"), (999.4, "999"), (1000.0, "1,000"), (1234567.8, "1,234,568")],
)
def test_money_has_three_digits_or_all_before_the_point(amount: float, text: str) -> None:
    assert cost_text(amount) == text
