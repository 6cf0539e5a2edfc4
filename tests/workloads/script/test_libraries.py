"""Scripts written with other libraries, unchanged, each measured by one real trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted import SCRIPTS

from perfsweep.pipelines.config.types import DesignConfig, SweepCommand
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Outcome, SweepFolder, TrialRecord
from perfsweep.workloads.api import Device

pytestmark = pytest.mark.workloads


@pytest.fixture
def measured(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Measures the naive arm of a script once."""
    monkeypatch.chdir(tmp_path)

    def measure(script: str, **fields: Any) -> TrialRecord:
        toy: SweepCommand = command(DesignConfig("one_at_a_time"))
        toy.workload = {"name": "script", "path": str(SCRIPTS / script), **fields}
        manifest = plan.single_arm(toy, Device())
        folder = SweepFolder(tmp_path / "runs" / "one")
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_manifest(manifest)
        return PackRun(folder, manifest, manifest.packs[0]).single().record

    return measure


@pytest.mark.parametrize(
    ("script", "args", "examples", "batches"),
    [
        ("trainer.py", "--output_dir={scratch}", 16, 2),
        ("lightning_module.py", "", 16, 1),
        ("accelerated.py", "", 16, 2),
    ],
)
def test_an_iteration_is_one_update_of_whatever_library(
    measured: Any, script: str, args: str, examples: int, batches: int
) -> None:
    record = measured(script, args=args)
    assert record.outcome is Outcome.OK, record.failure
    assert record.units / record.iterations == pytest.approx(examples, rel=0.3)
    assert record.counters["batches"] == pytest.approx(batches, rel=0.3)
    assert record.counters["optimizer_steps"] == 1


def test_a_script_of_hydra_is_measured(measured: Any) -> None:
    record = measured("hydra_app.py", args="hydra.run.dir={scratch}")
    assert record.outcome is Outcome.OK, record.failure
    assert record.iterations == 8


def test_a_distributed_script_finds_torchruns_variables(measured: Any) -> None:
    record = measured("ddp.py", ranks=2)
    assert record.outcome is Outcome.OK, record.failure
    assert record.units == 16 * record.iterations
