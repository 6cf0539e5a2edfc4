"""A search as one sweep: how it grows by a proposal, and what an arm costs."""

from __future__ import annotations

from toys.tunable import Config, Tunable

from pipelines.config.types import MeasureConfig, SweepCommand
from pipelines.plan import plan
from pipelines.plan.arms import Space
from pipelines.search.measurements import Candidate, extended
from pipelines.store.records import Manifest
from workloads.api import Device

SPACE = Space(Tunable.toggles, Config())
NAIVE = SPACE.complete({})


def alone(rounds: int = 3) -> Manifest:
    """The reference alone, with nothing to measure yet."""
    command = SweepCommand(workload={"name": "toys.tunable:Tunable"}, measure=MeasureConfig(rounds=rounds))
    planned = plan.single_arm(command, Device())
    sweep = planned.sweep.model_copy(
        update={"references": {"naive": planned.arms[0].id}, "measure": command.measure}
    )
    return planned.model_copy(update={"sweep": sweep, "packs": ()})


def candidate(base: dict | None = None, **levels: object) -> Candidate:
    whole = SPACE.complete(levels)  # type: ignore[arg-type]
    return Candidate(whole, SPACE.complete(base or {}), "arms", SPACE.label(whole), "vs naive")


def labels(manifest: Manifest, pack: int) -> set[str]:
    return {manifest.arm(arm).label for arm in manifest.packs[pack].arms}


def test_new_arms_stand_in_packs_of_their_own_beside_the_reference() -> None:
    first = extended(alone(), [candidate(fuse="on"), candidate(narrow="on")], SPACE, 8)
    assert [pack.id for pack in first.packs] == ["p000"]
    assert labels(first, 0) == {"baseline", "fuse=on", "narrow=on"}
    assert len(first.packs[0].orders) == 3 and first.packs[0].start == "fork"
    assert all(len(set(order)) == 3 for order in first.packs[0].orders)
    second = extended(first, [candidate(share="on")], SPACE, 8)
    assert [pack.id for pack in second.packs] == ["p000", "p001"]
    assert second.packs[0] == first.packs[0]
    assert labels(second, 1) == {"baseline", "share=on"}


def test_packs_have_room_for_so_many_arms_with_all_bases_in_each() -> None:
    many = [candidate(slab=size) for size in (2, 4, 8)]
    grown = extended(alone(), many, SPACE, 3)
    assert [labels(grown, place) for place in range(2)] == [
        {"baseline", "slab=2", "slab=4"},
        {"baseline", "slab=8"},
    ]
    narrow = extended(alone(), many, SPACE, 1)
    assert [len(pack.arms) for pack in narrow.packs] == [2, 2, 2], "one beside the reference at least"


def test_what_is_measured_against_another_arm_has_it_in_its_packs_too() -> None:
    fused = extended(alone(), [candidate(fuse="on")], SPACE, 8)
    grown = extended(fused, [candidate({"fuse": "on"}, fuse="on", share="on")], SPACE, 8)
    assert labels(grown, 1) == {"baseline", "fuse=on", "fuse=on,share=on"}
    effect = grown.effects[-1]
    ((arm, base),) = effect.pairs
    assert (grown.arm(arm).label, grown.arm(base).label) == ("fuse=on,share=on", "fuse=on")
    assert (effect.design, effect.toggle, effect.level, effect.reference) == (
        "arms",
        "fuse=on,share=on",
        "vs naive",
        "naive",
    )


def test_arms_and_effects_are_there_once_and_the_reference_is_no_effect_of_its_own() -> None:
    again = extended(alone(), [candidate(), candidate(fuse="on"), candidate(fuse="on")], SPACE, 8)
    assert [arm.label for arm in again.arms] == ["baseline", "fuse=on"]
    assert len(again.effects) == 1
    whole = extended(again, [candidate(fuse="on")], SPACE, 8)
    assert (whole.arms, whole.effects) == (again.arms, again.effects)
    assert labels(whole, 1) == {"baseline", "fuse=on"}


def test_a_reference_alone_is_a_pack_too() -> None:
    grown = extended(alone(), [candidate()], SPACE, 8)
    assert labels(grown, 0) == {"baseline"} and grown.effects == ()


def test_equal_searches_grow_equally() -> None:
    new = [candidate(fuse="on"), candidate(narrow="on")]
    assert extended(alone(), new, SPACE, 8) == extended(alone(), new, SPACE, 8)
