"""How many iterations a region has, and what is known of a job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.trial.machine.energy import Spent
from perfsweep.pipelines.trial.timing.iterations import whole_cadences
from perfsweep.pipelines.trial.timing.quantities import job_units, record_fields


class Work:
    """A workload that counts its steps, and ends after `last` of them."""

    cadence_is_known = True

    def __init__(self, shape: str = "steps", cadence: int = 1, last: int = 10**9, **changes: Any) -> None:
        self.shape, self.cadence, self.last, self.steps = shape, cadence, last, 0
        self.length, self.counts = changes.get("length"), changes.get("counts", {})

    def step(self, clock: object) -> None:
        if self.shape == "steps" and self.steps >= self.last:
            raise StopIteration
        self.steps += 1

    def done(self) -> bool:
        return self.steps >= self.last

    def counters(self) -> dict[str, float]:
        return self.counts

    def numbers(self) -> dict[str, Any]:
        return {"loss": 1}

    def progress(self) -> int:
        return 2 * self.steps


@pytest.mark.parametrize(("cadence", "iterations", "whole"), [(5, 5, 5), (5, 6, 10)])
def test_iterations_are_rounded_up_to_whole_cadences(cadence: int, iterations: int, whole: int) -> None:
    assert whole_cadences(Work(cadence=cadence), iterations) == whole  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("work", "units"),
    [
        (Work("job"), 20.0),
        (Work("job", counts={"sampled_share": 0.25}), 80.0),
        (Work("job", counts={"sampled_share": 0.0}), 20.0),
        (Work(length=100), 400.0),
        (Work(), None),
    ],
    ids=["a job", "a sample of one", "nothing sampled", "a training", "endless"],
)
def test_the_units_of_a_whole_job_or_training_are_known_where_it_has_an_end(
    work: Work, units: float | None
) -> None:
    assert job_units(work, 40.0, 10, 2) == units  # type: ignore[arg-type]


@pytest.mark.parametrize(("work", "job"), [(Work(length=100), {"job_units": 400.0}), (Work(), {})])
def test_a_record_has_the_devices_of_all_ranks_and_the_units_where_they_are_known(
    work: Work, job: dict
) -> None:
    ranks: Any = [SimpleNamespace(devices=2), SimpleNamespace(devices=1)]
    spent = [Spent(seconds=2.0, source="NVML", reason="no counter")]
    found = record_fields(work, ranks, spent, 40.0, 10, 1)  # type: ignore[arg-type]
    assert found["quantities"] == {"devices": 3.0, **job}
    assert [*found["withheld"].values()] == ["no counter"]
