"""What a search says while it goes on, and how it ends before its result."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path

import planned_sweeps
import pytest
from searched import FUSE, NARROW, SLAB, SPACE, Searching, searching, tune_command

from perfsweep.pipelines.execution.events import Held
from perfsweep.pipelines.search.measurements import Candidate, PackBroke
from perfsweep.pipelines.search.search import Observation, Proposal
from perfsweep.pipelines.search.surrogate import Factor, Point

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


@pytest.mark.parametrize(
    ("point", "name"), [((0, 0, 0), "the baseline"), ((1, 0, 0), "fuse=on"), ((0, 1, 2), "narrow=on, slab=4")]
)
def test_an_arm_is_called_by_what_differs_from_the_reference(
    search: Searching, point: Point, name: str
) -> None:
    assert search.driver.name(point) == name


def test_of_a_ladder_that_starts_in_its_middle_the_start_is_the_reference(tmp_path: Path) -> None:
    middle = searching(tmp_path, {}, [Factor("slab", (1, 2, 4), (0.0, 1.0, 2.0), start=1)])
    assert [middle.driver.name((place,)) for place in range(3)] == ["slab=1", "the baseline", "slab=4"]
    assert middle.driver.origin == (1,)


def test_each_arm_of_a_proposal_is_printed_with_its_cost_or_why_it_is_out(search: Searching) -> None:
    assert measured(search, "alone", (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 2)) == [
        "alone: 4 arms",
        "  fuse=on: 1.25x faster (+-2.0%)",
        "  narrow=on: out: departs",
        "  slab=2: out: failed: killed",
        "  slab=4: not measured",
    ]


def test_what_was_measured_before_is_not_printed_again(search: Searching) -> None:
    measured(search, "alone", (1, 0, 0), (0, 1, 0))
    assert measured(search, "screening", (1, 0, 0), (1, 0, 1)) == [
        "screening: 1 arm",
        "  fuse=on, slab=2: 2.50x faster (+-4.0%)",
    ]
    assert measured(search, "again", (1, 0, 0), (0, 1, 0)) == ["again: 2 arms"]
    assert [len(asked) for asked in search.sweep.asked] == [2, 2, 2]


def test_a_proposal_around_another_arm_says_beside_which(search: Searching) -> None:
    (heading, *_) = measured(search, "polish", (1, 0, 1), base=(1, 0, 0))
    assert heading == "polish: 1 arm, next to fuse=on"
    (heading, *_) = measured(search, "polish", (0, 0, 1), base=(0, 0, 0))
    assert heading == "polish: 1 arm"


BASELINE, FUSED = SPACE.complete({}), SPACE.complete({"fuse": "on"})
NAIVE, BEST = "vs naive", "vs the best so far"
BOTH = {"fuse": "on", "narrow": "on"}


@pytest.mark.parametrize(
    ("name", "point", "base", "changes", "against", "called"),
    [
        ("alone", (1, 0, 0), None, {"fuse": "on"}, BASELINE, ("one_at_a_time", "fuse", "on")),
        ("ladder", (0, 0, 2), None, {"slab": 4}, BASELINE, ("ladder", "slab", "4")),
        ("screening", (0, 0, 2), None, {"slab": 4}, BASELINE, ("arms", "slab=4", NAIVE)),
        ("alone", (1, 1, 0), None, BOTH, BASELINE, ("arms", "fuse=on,narrow=on", NAIVE)),
        ("ladder", (1, 0, 1), (1, 0, 0), {"fuse": "on", "slab": 2}, FUSED, ("ladder", "slab", "2")),
        ("polish", (1, 0, 1), (1, 0, 0), {"fuse": "on", "slab": 2}, FUSED, ("arms", "fuse=on,slab=2", BEST)),
        ("polish", (1, 0, 0), (0, 0, 0), {"fuse": "on"}, BASELINE, ("arms", "fuse=on", NAIVE)),
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
    assert found == Candidate(SPACE.complete(changes), against, *called)


def test_what_is_searched_is_printed_with_its_limits(search: Searching, tmp_path: Path) -> None:
    search.driver.print_space(tune_command(tmp_path, compile_s=60.0))
    assert search.printed.splitlines() == [
        "search: workload toys.tunable:Tunable, 12 arms from baseline",
        "  fuse (on)",
        "  narrow (on)",
        "  slab (1, 2, 4)",
        "limits: results no looser than tolerance; 60 s of compiling; for a long run",
        f"records: {tmp_path}",
        "",
    ]


def proposals(*points: Point) -> Generator[Proposal, object, str]:
    """A search that asks for each arm in turn, and returns what it was told of the first two."""
    seen = []
    for point in points:
        seen.append((yield Proposal("alone", (point,))))
    return " | ".join(",".join(map(str, sorted(one))) for one in seen)


def test_a_search_is_told_of_all_arms_so_far_after_each_proposal(search: Searching) -> None:
    assert search.driver.run(proposals((1, 0, 0), (0, 1, 0))) is None
    assert search.driver.result == "(0, 0, 0),(1, 0, 0) | (0, 0, 0),(0, 1, 0),(1, 0, 0)"


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


def test_the_best_so_far_is_the_fastest_arm_that_is_not_ruled_out(search: Searching) -> None:
    measured(search, "alone", (1, 0, 0), (0, 1, 0), (1, 0, 1))
    search.driver.print_best_so_far()
    assert search.printed.splitlines() == [
        "learnt so far: of 4 arms the best is fuse=on, slab=2: 2.50x faster (+-4.0%), not verified",
        "  narrow=on: out: departs",
        "The same command continues where it stopped.",
    ]


def test_the_reference_is_not_the_best_of_what_was_learnt(tmp_path: Path) -> None:
    slow = searching(
        tmp_path, {"baseline": Observation(0.0), "fuse=on": Observation(0.1)}, [FUSE, NARROW, SLAB]
    )
    measured(slow, "alone", (1, 0, 0))
    slow.driver.print_best_so_far()
    assert "of 2 arms the best is fuse=on: 1.11x slower (+-0.0%), not verified" in slow.printed


def test_a_search_has_a_page_once_something_was_planned(search: Searching) -> None:
    folder, page = search.sweep.folder, search.sweep.folder.report_file
    search.driver.write_report()
    arms = [
        planned_sweeps.arm(id, name, levels=SPACE.complete(levels))
        for id, name, levels in ((planned_sweeps.NAIVE, "naive", {}), (planned_sweeps.FAST, "fuse", BOTH))
    ]
    plan = planned_sweeps.manifest(*arms, sweep={"workload": "toys.tunable:Tunable"}, effects=())
    folder.write_manifest(plan)
    search.driver.write_report()  # its own plan has no packs: nothing was asked for
    assert not page.exists()
    search.sweep.manifest = plan  # type: ignore[assignment]
    search.driver.write_report()
    assert page.exists()
    assert search.printed == ""
