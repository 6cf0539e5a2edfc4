"""Trials run the sources that a sweep was prepared with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from loops import LOOP

from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store import code_snapshot
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.records import Kind, Outcome, SweepFolder, read_evidence
from perfsweep.workloads.api import Device

SCRIPT = "import os, scaled_by\n" + LOOP.replace(".square()", ".square().mul(scaled_by.SCALE)")
BEFORE_TORCH = "import os; os.environ['SAID_BEFORE_TORCH'] = 'x'\n"


@pytest.mark.workloads
@pytest.mark.parametrize(("start", "begin"), [("fork", ""), ("exec", BEFORE_TORCH)])
def test_a_script_that_is_edited_or_deleted_while_jobs_wait_is_measured_as_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, begin: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(begin + SCRIPT)
    (folder / "scaled_by.py").write_text("SCALE = 1.0")
    measure = MeasureConfig(evidence_iterations=4, counting_iterations=4)
    command = SweepCommand(workload={"name": "script", "path": "train.py"}, measure=measure)
    manifest = plan.single_arm(command, Device())
    assert manifest.packs[0].start == start
    sweep = SweepFolder(tmp_path / "runs" / "one")
    launch.prepare(sweep, manifest, "")
    (folder / "train.py").unlink()
    (folder / "scaled_by.py").write_text("SCALE = 0.0")
    for name, value in code_snapshot.sources_env(sweep.code_dir, manifest.sweep.code).items():
        monkeypatch.setenv(name, value)  # as jobs have it

    trial = PackRun(sweep, manifest, manifest.packs[0]).again(manifest.arms[0], Kind.EVIDENCE)

    assert trial.record.outcome is Outcome.OK, trial.record.failure
    assert np.all(read_evidence(trial.folder).tensors["losses"] > 0)
