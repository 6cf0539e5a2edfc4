"""A script that does not repeat itself says nothing of an arm's results; one that does says all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted import SCRIPTS

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.workloads


@pytest.fixture
def judged(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measures one level of a script, and gives the parity of the arm."""
    monkeypatch.chdir(tmp_path)

    def judge(script: str, toggle: str, level: str, **fields: Any) -> ParityResult:
        toy = command(DesignConfig("one_at_a_time", levels={toggle: [level]}))
        toy.workload = {"name": "script", "path": str(SCRIPTS / script), **fields}
        manifest = plan.make_plan(toy, Device())
        folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
        launch.prepare(folder, manifest, "")
        PackRun(folder, manifest, manifest.packs[0]).run()
        (effect,) = compare.compare(folder, manifest, collect.collect(folder, manifest)).effects
        assert effect.parity is not None
        return effect.parity

    return judge


def test_arms_of_a_script_that_does_not_repeat_itself_stay_unchecked(judged: Any) -> None:
    parity = judged("unrepeatable.py", "optimizer", "foreach")
    assert parity.verdict is ParityVerdict.UNCHECKED
    assert "the baseline does not repeat itself: two runs of it with one seed differ" in parity.reason


def test_an_arm_that_computes_something_else_is_different_from_one_that_repeats(judged: Any) -> None:
    parity = judged("plain.py", "own", "on", toggles={"own": {"off": "", "on": "--accumulate=2"}})
    assert parity.verdict is ParityVerdict.DIFFERENT
