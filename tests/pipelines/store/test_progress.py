"""What a resumed sweep finds: only records of its own code count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import FAST, NAIVE, Built, build

from pipelines.store.progress import Progress, StoredTrial, read_progress
from pipelines.store.records import Environment, Kind, Manifest, Outcome, Pack, TrialRecord, Version


def test_records_of_other_code_are_named_and_measured_anew(tmp_path: Path) -> None:
    sweep = build(tmp_path / "demo")
    (pack,) = sweep.manifest.packs
    before = read_progress(sweep.folder, sweep.manifest)
    assert before.timing and 0 not in before.unfinished_rounds(pack)
    newer = sweep.manifest.sweep.model_copy(update={"code": "changed"})
    progress = read_progress(sweep.folder, sweep.manifest.model_copy(update={"sweep": newer}))
    assert set(progress.left_out) == {"other code"}
    assert progress.unfinished_rounds(pack)[0] == 0
    assert not progress.timing


def versions(sweep: Built, **torch: str) -> Manifest:
    """The plan of a sweep whose arms run in environments with these versions of torch."""
    manifest = sweep.manifest
    made = tuple(
        Version(
            levels={"environment": name},
            digest=name,
            code="c0de",
            config={},
            environment=Environment(
                interpreter="", prefix="", python="", abi="", installed=name, keys={"torch": version}
            ),
        )
        for name, version in torch.items()
    )
    arms = tuple(replace(arm, version=name) for arm, name in zip(manifest.arms, torch, strict=True))
    return manifest.model_copy(
        update={"arms": arms, "sweep": manifest.sweep.model_copy(update={"versions": made})}
    )


def test_arms_in_environments_count_beside_one_another_whatever_torch_they_have(tmp_path: Path) -> None:
    sweep = build(tmp_path / "demo")
    here = {"device": "some CPU", "torch": "2.13.0"}
    for arm, torch in ((NAIVE, "2.13.0"), (FAST, "2.14.1")):
        sweep.add(sweep.spec(arm, 0, attempt=7), None, units=1.0, keys={**here, "torch": torch, "data": "d"})
    pack, number = sweep.manifest.packs[0], 0

    def measured(manifest: Manifest) -> set[str]:
        progress = read_progress(sweep.folder, manifest, here)
        return set(progress.timing[pack.id, number][7])

    assert measured(sweep.manifest) == {NAIVE.id}, "of another torch than this, and no arm says so"
    assert measured(versions(sweep, a="2.13.0", b="2.14.1")) == {NAIVE.id, FAST.id}
    assert measured(versions(sweep, a="2.13.0", b="2.15.0")) == {NAIVE.id}, "its environment has another now"
    progress = read_progress(sweep.folder, versions(sweep, a="2.13.0", b="2.14.1"), here)
    machines = [progress.machine, *(one.machine for one in progress.elsewhere)]
    assert all("torch" not in machine for machine in machines), "no machine is told apart by it"
    assert all(one.record.kind is Kind.TIMING for one in progress.timing[pack.id, number][7].values())


ARMS = (FAST.id, NAIVE.id)


def timing(arm: str, number: int, attempt: int = 0) -> StoredTrial:
    own = {"pack": "p000", "round": number, "attempt": attempt, "outcome": Outcome.OK}
    record = TrialRecord(arm=arm, kind=Kind.TIMING, environment={"host": "n1", "cores": 2}, **own)
    return StoredTrial(Path(), record)


@pytest.mark.parametrize("stride", [1, 5])
def test_a_round_that_was_found_finished_is_not_looked_at_again_unless_it_gets_a_record(
    monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    """Otherwise each of thousands of rounds costs a pack more than the one before."""
    pack, progress = Pack(id="p000", orders=(ARMS,) * 40, start="fork"), Progress(stride=stride)
    for number in range(30):
        for arm in ARMS:
            progress.add(timing(arm, number))
    assert progress.unfinished_rounds(pack) == list(range(30, 40))
    looked: list[int] = []
    real = Progress._satisfied

    def satisfied(self: Progress, pack: Pack, number: int, retry: frozenset[Outcome]) -> bool:
        looked.append(number)
        return real(self, pack, number, retry)

    monkeypatch.setattr(Progress, "_satisfied", satisfied)
    assert progress.unfinished_rounds(pack) == looked == list(range(30, 40))
    looked.clear()
    progress.add(timing(ARMS[0], 7, attempt=1))
    assert progress.unfinished_rounds(pack) == list(range(30, 40))
    assert {*looked} == {*progress.together(7), *range(30, 40)}


def test_records_of_one_machine_share_what_they_say_of_it() -> None:
    progress = Progress()
    trials = [timing(arm, number) for number in range(3) for arm in ARMS]
    for one in trials:
        progress.add(one)
    assert {id(one.record.environment) for one in trials} == {id(trials[0].record.environment)}
    assert trials[0].record.environment == {"host": "n1", "cores": 2}


def test_a_failed_round_that_was_measured_again_counts_though_something_disturbed_it() -> None:
    progress, pack = Progress(), Pack(id="p000", orders=(ARMS,), start="fork")
    for attempt, outcome, disturbed in ((0, Outcome.FAILED, ()), (1, Outcome.OK, ("a neighbour",))):
        for arm in ARMS:
            record = replace(timing(arm, 0, attempt).record, outcome=outcome, disturbed=disturbed)
            progress.add(StoredTrial(Path(), record))
    assert progress.finished_attempt("p000", 0, ARMS) == 1
    assert progress.unfinished_rounds(pack, frozenset({Outcome.FAILED})) == [], "it was tried again for ever"


def test_an_attempt_that_broke_off_does_not_count_before_a_whole_one_though_every_arm_was_retired() -> None:
    progress, pack = Progress(), Pack(id="p000", orders=(ARMS, ARMS), start="fork")

    def add(arm: str, number: int, attempt: int, **own: Any) -> None:
        record = replace(timing(arm, number, attempt).record, **own)
        progress.add(StoredTrial(Path(), record))

    for number in range(2):
        for arm in ARMS:
            add(arm, number, 0, outcome=Outcome.FAILED)
    assert set(progress.retired("p000", ARMS)) == {*ARMS}
    add(ARMS[0], 0, 1, disturbed=("a neighbour",))
    for number in range(2):
        for arm in ARMS:
            add(arm, number, 2, disturbed=("a neighbour",))
    assert progress.finished_attempt("p000", 0, ARMS) == 2
    assert progress.unfinished_rounds(pack, frozenset({Outcome.FAILED})) == [], "it was tried again for ever"
