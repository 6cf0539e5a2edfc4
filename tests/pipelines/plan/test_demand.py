"""What a sweep will ask for: the limits of its packs, or what its own trials took."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.plan.demand import estimate_cost
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, Pack, TrialRecord
from perfsweep.slurm.site import Shape, SiteProfile

BOTH = {"p000": 6, "p001": 6}
PACKS = [Pack(id=id, orders=(("a", "b"),), start="fork") for id in ("p000", "p001")]


class Planned:
    """Of a manifest, what is asked for."""

    packs = PACKS


def trials(*seconds: float) -> Progress:
    progress = Progress()
    for number, took in enumerate(seconds):
        own = {"arm": "a", "kind": Kind.TIMING, "pack": "p000", "round": number, "attempt": 0}
        record = TrialRecord(outcome=Outcome.OK, started=1000.0, ended=1000.0 + took, **own)  # type: ignore[arg-type]
        progress.add(StoredTrial(Path("a"), record))
    return progress


@pytest.mark.parametrize(
    ("todo", "shape", "seconds", "says"),
    [
        (BOTH, Shape(0, 1), (), "at most 2.0 hours"),
        ({"p000": 6, "p001": 0}, Shape(0, 1), (), "at most 1.0 hours"),
        (BOTH, Shape(4, 1, nodes=2), (), "at most 16.0 GPU-hours"),
        (BOTH, Shape(0, 1), (60.0, 90.0, 9000.0), "about 0.6 hours, from the trials that are there"),
        (BOTH, Shape(0, 1), (9000.0,), "about 2.0 hours, from the trials that are there"),
    ],
    ids=["no trial", "a pack is done", "nodes", "the median trial", "never beyond limits"],
)
def test_the_cost_is_that_of_unfinished_packs(
    todo: dict[str, int], shape: Shape, seconds: tuple[float, ...], says: str
) -> None:
    shapes = {pack.id: shape for pack in PACKS}
    site = SiteProfile(time_min=60)
    found = estimate_cost(Planned(), todo, shapes, site, trials(*seconds))  # type: ignore[arg-type]
    assert str(found) == says
