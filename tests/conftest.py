"""Fixtures for all tests: small sweeps of a toy workload, planned and run for real."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

SUPPORT = Path(__file__).with_name("support")
sys.path.insert(0, str(SUPPORT))  # toys and declared tables are imported by name, as a user's module would be
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pipelines.config import ClusterConfig, DesignConfig, MeasureConfig, SweepCommand, SweepConfig  # noqa: E402

# A loaded machine is slow, not wrong; and a test that fails must fail again when it is run again.
settings.register_profile("perfsweep", deadline=None, derandomize=True)
settings.load_profile("perfsweep")

TOY = "toys.spinner:Spinner"

MakeCommand = Callable[..., SweepCommand]


@pytest.fixture
def command(tmp_path: Path) -> MakeCommand:
    """Builds the configuration of a small sweep of the toy workload."""

    def make(*designs: DesignConfig, workload: str = TOY, **changes: object) -> SweepCommand:
        measure = MeasureConfig(rounds=2, iterations=8, warmup_max=10, evidence_iterations=4, counting_iterations=2, timeout_s=60)
        for name, value in dict(changes.pop("measure", {})).items():  # type: ignore[call-overload]
            setattr(measure, name, value)
        values = {
            "workload": {"name": workload},
            "measure": measure,
            "cluster": ClusterConfig(executor="inprocess"),
            "sweep": SweepConfig(name="toy", designs=list(designs), references=dict(changes.pop("references", {"naive": {}}))),  # type: ignore[call-overload]
            "runs": str(tmp_path / "runs"),
        }
        return SweepCommand(**{**values, **changes})  # type: ignore[arg-type]

    return make
