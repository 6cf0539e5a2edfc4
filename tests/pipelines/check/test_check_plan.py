"""What a check runs: every arm once and briefly, unless somebody has said how long."""

from __future__ import annotations

from typing import Any

import pytest
from toys.defective import Sound

from perfsweep.pipelines.check.check_plan import plan_check
from perfsweep.pipelines.config.types import MeasureConfig, RunCommand
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.api import Device


def planned(given: Any = (), toggles: Any = None, levels: Any = None, **measure: Any) -> Manifest:
    command = RunCommand(workload={"name": "toys.defective:Sound"}, measure=MeasureConfig(**measure))
    return plan_check(command, Device(), given, toggles, levels)


def labels(manifest: Manifest) -> list[str]:
    return [arm.label for arm in manifest.arms]


def test_a_check_is_brief_but_for_what_was_asked_for() -> None:
    own = {"iterations": 9, "rounds": 7, "timeout_s": 5.0, "evidence_iterations": 3, "repeats": 4}
    brief, asked = planned(**own), planned(("iterations", "rounds", "repeats"), **own)
    lengths = [
        (one.iterations, one.rounds, one.timeout_s, one.repeats)
        for one in (brief.sweep.measure, asked.sweep.measure)
    ]
    assert lengths == [(4, 1, 120, 0), (9, 1, 120, 4)]
    assert brief.sweep.measure.evidence_iterations == asked.sweep.measure.evidence_iterations == 12
    assert [len(pack.orders) for pack in brief.packs] == [1]
    assert labels(brief) == ["baseline", "halves=on", "rounded=on"]
    assert labels(planned(toggles=["rounded"])) == ["baseline", "rounded=on"]


def test_arms_that_need_a_process_of_their_own_are_a_pack_and_a_workload_without_toggles_one_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sound, "needs_exec", classmethod(lambda cls, levels: levels.get("halves") == "on"))
    manifest = planned()
    ids = {arm.label: arm.id for arm in manifest.arms}
    assert [(pack.id, pack.start, pack.orders) for pack in manifest.packs] == [
        ("p000", "fork", ((ids["baseline"], ids["rounded=on"]),)),
        ("p001", "exec", ((ids["halves=on"],),)),
    ]
    monkeypatch.setattr(Sound, "toggles", ())
    assert (labels(planned()), planned().effects) == (["baseline"], ())
