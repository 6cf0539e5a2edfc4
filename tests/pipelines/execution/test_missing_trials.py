"""Packs that lack trials without times, whatever rounds they have: what was lost since is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from planned_sweeps import FAST, NAIVE, arm, begun, effect, manifest, pack, progress, record, sweep

from perfsweep.pipelines.execution import missing_trials
from perfsweep.pipelines.execution.missing_trials import beside_rounds, lacking, unchecked, untrained
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder
from perfsweep.pipelines.store.trial_schema import Keep

C = "c" * 16
ONCE = [(one, kind, 0) for one in (NAIVE, FAST, C) for kind in (Kind.COUNTING, Kind.EVIDENCE)]
SEEDS = [(one, Kind.EVIDENCE, 1) for one in (NAIVE, FAST)]
MADE = [*ONCE, *SEEDS]
PLAN = manifest(
    *map(arm, (NAIVE, FAST, C)),
    effects=(effect((FAST, NAIVE)),),
    packs=(pack(NAIVE, FAST), pack(NAIVE, C, id="p001")),
)


@pytest.fixture(autouse=True)
def drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pack should have two seeds."""

    class Agreement:
        def __init__(self, *words: object) -> None: ...

        def replicates_wanted(self, pack) -> list[tuple[str, int]]:
            return [(one, offset) for one, _, offset in SEEDS] if pack.id == "p000" else []

    monkeypatch.setattr(missing_trials, "Agreement", Agreement)


def made(*trials: tuple[str, Kind, int], **own: object) -> Progress:
    progress = Progress()
    for one, kind, offset in trials:
        progress.add(StoredTrial(Path(), record(one, kind, replicate=offset, **own)))
    return progress


@pytest.mark.parametrize(
    ("lost", "packs"),
    [
        *(
            (one, {"p000", "p001"} if one[0] == NAIVE else {"p001"} if one[0] == C else {"p000"})
            for one in ONCE
        ),
        *((one, {"p000"}) for one in SEEDS),
    ],
)
def test_packs_lack_what_was_lost_of_their_arms(lost: tuple[str, Kind, int], packs: set[str]) -> None:
    assert lacking(PLAN, made(*(one for one in MADE if one != lost))) == packs


def test_what_failed_is_there_unless_it_is_to_be_tried_again() -> None:
    failed = made(*MADE, outcome=Outcome.FAILED)
    assert lacking(PLAN, failed) == lacking(PLAN, failed, frozenset({Outcome.OOM})) == set()
    assert lacking(PLAN, failed, frozenset({Outcome.FAILED})) == {"p000", "p001"}


def test_packs_lack_results_to_keep_whose_folders_are_made(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "sweep")
    assert beside_rounds(folder, PLAN, []) == set()
    keep = Keep(folder=str(tmp_path / "kept"), iterations=3)
    plan = PLAN.model_copy(update={"sweep": PLAN.sweep.model_copy(update={"keep": keep})})
    begun(folder, plan, C, kind=Kind.EVIDENCE, round=None, attempt=0, outcome=Outcome.OOM)
    assert beside_rounds(folder, plan, []) == {"p000", "p001"}
    assert sorted(one.name[0] for one in (tmp_path / "kept").iterdir()) == ["a", "b"]


@pytest.mark.parametrize("timed_parity", [True, False])
def test_packs_lack_the_numbers_that_their_rounds_ended_at_where_these_are_compared(
    timed_parity: bool,
) -> None:
    plan = PLAN.model_copy(update={"sweep": sweep({"timed_parity": timed_parity})})
    timed = [record(one, round=0, reached=40) for one in (NAIVE, FAST)]
    course = record(NAIVE, Kind.COURSE, course={40: {"loss": 1.0}})
    assert unchecked(plan, progress(*timed, course)) == ({"p000"} if timed_parity else set())


def test_an_arm_that_no_trial_can_run_is_not_awaited_to_be_trained() -> None:
    target = {"target": 0.5, "target_figure": "loss", "target_better": "lower", "target_every": 10}
    plan = manifest(
        *(arm(one) for one in (NAIVE, FAST)),
        packs=(pack(NAIVE), pack(FAST, id="p001")),
        sweep={"measure": {**target, "target_steps": 20, "target_seeds": 3}},
    )
    assert untrained(plan, Progress()) == {"p000", "p001"}
    refused = made((FAST, Kind.EVIDENCE, 0), pack="p001", outcome=Outcome.UNSUPPORTED)
    assert untrained(plan, refused) == {"p000"}
