"""The column of energy: what it says beside the joules, and of the machine at rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantities.cost import energy_text
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.idle import IdlePower, write_idle
from perfsweep.pipelines.store.options import ReportConfig

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


def test_joules_are_those_of_a_unit(judged: Judged) -> None:
    assert [one.quantities["energy"] for one in judged().arms] == [9.0, 9.0]


def test_the_notes_name_the_counters_and_what_the_machine_draws_at_rest(judged: Judged) -> None:
    notes = judged(IdlePower(source="NVML", watts={"GPU-1": 61.25}, step_s=0.1)).notes
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


@pytest.mark.parametrize(
    ("joules", "text"),
    [(12345.0, "12.3 kJ"), (2.5, "2.5 J"), (0.0025, "2.5 mJ"), (2.5e-6, "2.5 uJ"), (2.5e-9, "2.5 nJ")],
)
def test_energy_reads_in_the_unit_that_fits(joules: float, text: str) -> None:
    assert energy_text(joules) == text
