"""What a search says while it goes on, and how it ends before its result."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path

import pytest
from searched import SPACE, Searching, searching, tune_command

from perfsweep.pipelines.config.types import MeasureConfig
from perfsweep.pipelines.execution.submitted import Held
from perfsweep.pipelines.plan.designs import PlannedEffect
from perfsweep.pipelines.search.factors import Point
from perfsweep.pipelines.search.measurements import PackBroke
from perfsweep.pipelines.search.search import Observation, Proposal

STATED = {
    "baseline": Observation(0.0, 0.0001),
    "fuse=on": Observation(math.log(0.8), 0.0001),
    "narrow=on": Observation(None, reason="departs", outcome="different"),
    "slab=2": Observation(None, reason="killed", outcome="failed"),
    "fuse=on,slab=2": Observation(math.log(0.4), 0.0004),
}


@pytest.fixture
def search(tmp_path: Path) -> Searching:
    return searching(tmp_path, STATED)


def measured(search: Searching, name: str, *points: Point, base: Point | None = None) -> list[str]:
    search.driver.measure(Proposal(name, points, base))
    return search.printed.splitlines()


def test_it_says_first_what_is_searched_within_which_limits(search: Searching, tmp_path: Path) -> None:
    search.driver.print_space(tune_command(tmp_path, MeasureConfig(memory_gib=1.5), iterations=100.0))
    assert search.printed.splitlines() == [
        "search: workload toys.tunable:Tunable, 12 arms from baseline",
        "  fuse (on)",
        "  narrow (on)",
        "  slab (1, 2, 4)",
        "limits: results no looser than tolerance; peak memory 1.5 GiB; for 100 iterations, set-up and"
        " compiling included",
        f"records: {tmp_path}",
        "",
    ]


def test_each_arm_of_a_proposal_is_printed_with_its_cost_or_why_it_is_out(search: Searching) -> None:
    assert measured(search, "alone", (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2)) == [
        "alone: 4 arms",
        "  fuse=on: 1.25x faster (+-2.0%)",
        "  narrow=on: out: departs",
        "  slab=2: out: failed: killed",
        "  slab=4: not measured",
    ]


BASELINE, FUSED = SPACE.complete({}), SPACE.complete({"fuse": "on"})
NAIVE, BEST = "vs naive", "vs the best so far"
BOTH = {"fuse": "on", "narrow": "on"}


@pytest.mark.parametrize(
    ("name", "point", "base", "changes", "against", "called"),
    [
        ("alone", (1, 0, 0), None, {"fuse": "on"}, BASELINE, ("one_at_a_time", "fuse", "on")),
        ("ladder", (0, 0, 2), None, {"slab": 4}, BASELINE, ("ladder", "slab", "4")),
        ("alone", (1, 1, 0), None, BOTH, BASELINE, ("arms", "fuse=on,narrow=on", NAIVE)),
        ("polish", (1, 0, 1), (1, 0, 0), {"fuse": "on", "slab": 2}, FUSED, ("arms", "fuse=on,slab=2", BEST)),
    ],
)  # fmt: skip
def test_an_arm_is_compared_with_what_the_proposal_stands_on(
    search: Searching,
    name: str,
    point: Point,
    base: Point | None,
    changes: dict,
    against: dict,
    called: tuple[str, str, str],
) -> None:
    found = search.driver.candidate(Proposal(name, (point,), base), point)
    assert found == PlannedEffect(*called, ((SPACE.complete(changes), against),), "naive")


def proposals(*points: Point) -> Generator[Proposal, object, list]:
    """A search that asks for each arm in turn, and returns what it was told after each."""
    seen = []
    for point in points:
        seen.append((yield Proposal("alone", (point,))))
    return seen


def test_a_search_is_told_of_all_arms_so_far_and_ends_with_its_result(search: Searching) -> None:
    fused, reference = STATED["fuse=on"], STATED["baseline"]
    assert search.driver.run(proposals((1, 0, 0), (0, 1, 0))) is None
    first = {(0, 0, 0): reference, (1, 0, 0): fused}
    assert search.driver.result == [first, {**first, (0, 1, 0): STATED["narrow=on"]}]
    assert [[one.level for one in asked] for asked in search.sweep.asked] == [["on"], ["on"]]
    assert search.printed.splitlines() == [
        "alone: 1 arm",
        "  fuse=on: 1.25x faster (+-2.0%)",
        "alone: 1 arm",
        "  narrow=on: out: departs",
    ]
    again = Proposal("polish 1", ((1, 0, 0), (1, 0, 1)), (1, 0, 0))
    assert measured(search, again.name, *again.points, base=again.base) == [
        "polish 1: 1 arm, next to fuse=on",
        "  fuse=on, slab=2: 2.50x faster (+-4.0%)",
    ]
    search.driver.print_best_so_far()
    assert search.printed.splitlines() == [
        "learnt so far: of 4 arms the best is fuse=on, slab=2: 2.50x faster (+-4.0%), not verified",
        "  narrow=on: out: departs",
        "The same command continues where it stopped.",
    ]


@pytest.mark.parametrize(
    ("end", "remote", "status", "said"),
    [
        (PackBroke("pack p000 broke off"), False, 1, ["pack p000 broke off"]),
        (KeyboardInterrupt(), False, 130, ["", "stopped; finished rounds are kept in {folder}"]),
        (
            Held({"p000": "waits for a node"}),
            True,
            3,
            ["nothing more will happen by itself: p000: waits for a node", "Come back from any shell with"],
        ),
    ],
)
def test_a_search_that_ends_early_says_why_and_what_it_learnt(
    tmp_path: Path, end: BaseException, remote: bool, status: int, said: list[str]
) -> None:
    broken = searching(tmp_path, STATED, breaks=end, remote=remote)
    assert broken.driver.run(proposals((1, 0, 0))) == status
    lines = broken.printed.splitlines()
    assert lines[1 : 1 + len(said)] == [line.format(folder=tmp_path) for line in said]
    assert lines[-2:] == [
        "learnt so far: no arm but the baseline has finished its rounds",
        "The same command continues where it stopped.",
    ]
