"""Commits that are arms of one sweep: a version each, and changes that a wandering machine does not move."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from perfsweep.pipelines.analysis.across.version_history import (
    ArmHistory,
    CommitVersions,
    arm_history,
    commit_versions,
    history,
)
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Arm, Manifest, Pack, Sweep, Version
from perfsweep.workloads.errors import RecordError

ROUNDS = 6
AMPS = ("off", "bf16")


def arm_of(level: str, amp: str, first: str) -> Arm:
    off = [
        text for text, is_off in ((f"amp={amp}", amp != "off"), (f"commit={level}", level != first)) if is_off
    ]
    return Arm(id=f"{amp}@{level}", label=",".join(off) or "baseline", levels={"amp": amp, "commit": level})


def planned(levels: list[str]) -> Manifest:
    """A sweep of every level with two levels of another toggle, in one pack."""
    arms = [arm_of(level, amp, levels[0]) for level in levels for amp in AMPS]
    versions = [
        Version(
            levels={"commit": level},
            repository="/r",
            sources=f"s{place}",
            commit=None if level == "worktree" else f"{place:040x}",
            digest=f"d{place}",
            code="c",
            config={},
        )
        for place, level in enumerate(levels)
    ]
    measure = MeasureConfig(rounds=ROUNDS)
    sweep = Sweep(
        name="s",
        workload="w",
        config={},
        measure=measure,
        code="c",
        references={"naive": arms[0].id},
        versions=tuple(versions),
    )
    pack = Pack(id="p000", orders=(tuple(one.id for one in arms),) * ROUNDS, start="fork")
    return Manifest(sweep=sweep, arms=tuple(arms), effects=(), packs=(pack,))


def timed(manifest: Manifest, slower: dict[str, float], drift: float = 0.3) -> pl.DataFrame:
    """Timing trials of a machine that wanders by `drift` from round to round; bf16 takes half the time."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(ROUNDS):
        speed = math.exp(drift * rng.standard_normal())
        for arm in manifest.arms:
            level, amp = str(arm.levels["commit"]), arm.levels["amp"]
            time = 1000.0 * slower.get(level, 1.0) * (0.5 if amp == "bf16" else 1.0)
            time *= speed * math.exp(0.003 * rng.standard_normal())
            rows.append(
                {
                    "folder": f"{arm.id}-{number}",
                    "arm": arm.id,
                    "label": arm.label,
                    "pack": "p000",
                    "round": number,
                    "server": number,
                    "outcome": "ok",
                    "used": True,
                    "keys": "device=cpu; torch=2.13; data=d",
                    "started": float(number),
                    "ns_per_unit": time,
                    "wall_ns_per_unit": time,
                    "lost_ns": 0,
                }
            )
    return pl.DataFrame(rows)


def versions_of(levels: list[str], slower: dict[str, float]) -> CommitVersions:
    manifest = planned(levels)
    found = commit_versions(manifest, "pair", timed(manifest, slower))
    assert found is not None
    return found


def followed(found: CommitVersions, label: str, *, paired: bool = True) -> ArmHistory:
    return arm_history(found.baselines, label, paired=found if paired else None)


def test_each_commit_is_a_version_in_the_order_of_the_axis() -> None:
    found = versions_of(["v2", "v1", "worktree"], {})
    assert [(one.sweep, one.commit) for one in found.baselines] == [
        ("v2", f"{0:040x}"),
        ("v1", f"{1:040x}"),
        ("worktree", ""),
    ]
    assert all(list(one.rounds) == ["baseline", "amp=bf16"] for one in found.baselines)
    assert {one.reference for one in found.baselines} == {"baseline"}


def test_a_change_is_paired_within_rounds_so_that_a_wandering_machine_does_not_hide_it() -> None:
    found = versions_of(["a", "b", "c"], {"b": 1.1, "c": 1.1})
    _, second, third = followed(found, "amp=bf16").versions
    assert second.change is not None and second.change.low is not None
    assert second.change.low < 1.1 < (second.change.high or 0) and second.change.low > 1.08
    assert (second.direction, third.direction) == ("slower", "")
    # What all arms of a version share is no change beside the reference.
    assert second.change.relative is not None
    assert second.change.relative[0] == pytest.approx(1.0, abs=0.01)
    assert [one.direction for one in followed(found, "amp=bf16", paired=False).versions] == ["", "", ""]


def test_change_points_are_those_of_the_code_and_not_of_the_machine() -> None:
    levels = [f"v{n:02d}" for n in range(12)]
    found = versions_of(levels, dict.fromkeys(levels[7:], 1.05))
    for arm in history(found.baselines, paired=found).arms:
        assert [place for place, one in enumerate(arm.versions) if one.level] == [7]
        assert arm.versions[7].level == pytest.approx(1.05, abs=0.005)


def test_a_sweep_without_versions_is_none_and_one_without_a_round_says_so() -> None:
    manifest = planned(["a", "b"])
    plain = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"versions": ()})})
    assert commit_versions(plain, "pair", timed(manifest, {})) is None
    with pytest.raises(RecordError, match="s has no finished round of any version yet"):
        commit_versions(manifest, "pair", timed(manifest, {}).clear())
