"""Rounds that were planned and are not there: which, and what one does about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from measured import change, cost, simulated

from perfsweep.pipelines.analysis.failed_trials import missing_rounds, notes_on_other_machines
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Manifest, SweepFolder


@pytest.fixture
def sweep(command: Callable) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of three rounds, an arm and the reference in each pack."""

    def make(levels: int = 1) -> tuple[SweepFolder, Manifest]:
        design = DesignConfig("one_at_a_time", levels={"slab": list(range(2, 2 + levels))})
        cluster = ClusterConfig(executor="inprocess", arms_per_pack=2)
        return simulated(command(design, measure={"rounds": 3}, cluster=cluster), cost)

    return make


def said(folder: SweepFolder, manifest: Manifest) -> list[str]:
    return list(missing_rounds(read_progress(folder, manifest), manifest))


def lose(folder: SweepFolder, pack: str, number: int) -> None:
    """Let a round have no records."""
    for record in folder.path.glob(f"trials/*/{pack}-r{number:03d}-*"):
        shutil.rmtree(record)


def fail(folder: SweepFolder, pack: str, outcome: str, **failure: str) -> None:
    """Let the first rounds of a pack have ended so, so that its last one was not tried."""
    lose(folder, pack, 2)
    for record in folder.path.glob(f"trials/*/{pack}-r*/record.json"):
        change(record, outcome=outcome, **({"failure": failure} if failure else {}))


def test_of_a_finished_sweep_nothing_is_missing(sweep) -> None:
    assert said(*sweep()) == []


def test_rounds_that_are_missing_are_counted_by_pack(sweep) -> None:
    folder, manifest = sweep(2)
    lose(folder, "p000", 0)
    lose(folder, "p001", 1)
    lose(folder, "p001", 2)
    assert said(folder, manifest) == [
        "rounds are missing: 1 of 3 in p000, 2 of 3 in p001; the same command measures them"
    ]


@pytest.mark.parametrize(("packs", "more"), [(5, ""), (7, " and 2 more packs")])
def test_five_packs_are_named_and_the_rest_counted(sweep, packs: int, more: str) -> None:
    folder, manifest = sweep(packs)
    for number in range(packs):
        lose(folder, f"p{number:03d}", 0)
    (line,) = said(folder, manifest)
    assert line.endswith(f"1 of 3 in p004{more}; the same command measures them")


def test_rounds_of_arms_that_all_failed_say_what_to_mend(sweep) -> None:
    folder, manifest = sweep()
    fail(folder, "p000", "failed", type="RuntimeError", message="no such file")
    (line,) = said(folder, manifest)
    assert line == (
        "rounds are missing: 1 of 3 in p000, since every arm failed and was not started again"
        " (RuntimeError: no such file)"
    )


def test_a_process_that_left_no_exception_says_so(sweep) -> None:
    folder, manifest = sweep()
    fail(folder, "p000", "failed")
    assert "(without an exception)" in said(folder, manifest)[0]


def test_arms_that_do_not_fit_into_memory_miss_nothing(sweep) -> None:
    folder, manifest = sweep()
    fail(folder, "p000", "oom", type="OutOfMemoryError", message="8 GiB")
    assert said(folder, manifest) == []


def test_what_ran_on_another_machine_is_told_with_what_sets_it_apart(sweep) -> None:
    folder, manifest = sweep(2)
    assert notes_on_other_machines(read_progress(folder, manifest), manifest) == []
    for record in folder.path.glob("trials/*/p001-r*/record.json"):
        change(record, keys={"device": "other"})
    lose(folder, "p001", 0)
    (note,) = notes_on_other_machines(read_progress(folder, manifest), manifest)
    assert note == (
        "4 timing trials are left out: device is other and not fake; pairs in p001 are in tables of"
        " their own, for other; on a cluster, cluster.gpu_type or cluster.constraint keeps packs on one kind"
    )
