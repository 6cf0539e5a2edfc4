"""Cost and energy: the price or the joules of what the trials used, and why they cannot be had."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantity import cost_text, energy_text
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.needed_once import IdlePower, write_idle
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
    assert values(comparison, "job_cost") == pytest.approx([25.0, 12.5]), "a job has half a million units"


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


@pytest.mark.parametrize(("amount", "text"), [(0.012345, "0.0123"), (999.4, "999"), (1234567.8, "1,234,568")])
def test_money_has_three_digits_or_all_before_the_point(amount: float, text: str) -> None:
    assert cost_text(amount) == text


FACTS = {"energy": {"source": "NVML", "counters": ["GPU-1"]}}
Judged = Callable[..., Comparison]


@pytest.fixture
def judged(command: Callable) -> Judged:
    """A comparison whose regions of 10 s took 900 J, with what the pack measured at rest."""

    def run(idle: IdlePower | None = None, damage: str = "") -> Comparison:
        sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 4})
        sweep.report = ReportConfig(["energy"])
        folder, manifest = simulated(sweep, cost)
        for record in folder.path.glob("trials/*/*-r*/record.json"):
            own = {"quantities": {"energy_j": 900.0}, "environment": FACTS}
            change(record, region_ns=10 * 10**9, units=100.0, **own)
        if idle:
            write_idle(folder, "p000", idle)
        if damage:
            (folder.pack_dir("p000") / "idle.json").write_text(damage)
        return compared(folder, manifest)

    return run


def test_the_notes_name_the_counters_and_what_the_machine_draws_at_rest(judged: Judged) -> None:
    comparison = judged(IdlePower(source="NVML", watts={"GPU-1": 61.25}, step_s=0.1))
    assert [one.quantities["energy"] for one in comparison.arms] == [9.0, 9.0], "joules of a unit"
    notes = comparison.notes
    assert "energy: from the counters of NVML (GPU-1), idling included" in notes
    idle = "idle power: 61.2 W with no trial running; the baseline drew 90 W in its regions"
    assert idle in notes


def test_a_machine_that_was_not_at_rest_says_so(judged: Judged) -> None:
    notes = judged(IdlePower(source="RAPL", withheld="other processes used 1.0 cores")).notes
    assert any(note.startswith("idle power: not known: other processes used 1.0 cores") for note in notes)


def test_a_damaged_file_is_named_and_the_rest_stays(judged: Judged) -> None:
    comparison = judged(IdlePower(), damage="{")
    assert any("idle.json cannot be read" in note for note in comparison.notes)
    assert comparison.effects[0].quantities["energy"].ratio == pytest.approx(1.0)


@pytest.mark.parametrize(("joules", "text"), [(12345.0, "12.3 kJ"), (2.5, "2.5 J"), (2.5e-9, "2.5 nJ")])
def test_energy_reads_in_the_unit_that_fits(joules: float, text: str) -> None:
    assert energy_text(joules) == text
