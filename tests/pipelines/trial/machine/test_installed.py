"""What is installed where a trial runs, as far as it decides what is measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from planned_sweeps import spec

from perfsweep.pipelines.store.trial_schema import Outcome
from perfsweep.pipelines.trial import process
from perfsweep.pipelines.trial.identity import packages
from perfsweep.pipelines.trial.machine.gpus import torch_build
from perfsweep.workloads.errors import ConfigError


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name in ("My.Package-1.2+cpu.dist-info", "old-0.9-py3.11.egg-info", "perfsweep-0.1.0.dist-info"):
        (tmp_path / "site" / name).mkdir(parents=True)
    return tmp_path / "site"


def test_packages_are_listed_by_name_without_what_measures_or_the_path_of_modules_adds(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = packages([str(site)])
    assert found.pop("torch")
    assert found == {"my-package": "1.2+cpu", "old": "0.9"}
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert set(packages([str(site)])) == {"torch"}


def test_a_trial_that_finds_other_packages_than_planned_ends_before_its_workload(tmp_path: Path) -> None:
    record = process.run(spec(workload="no:Such", installed="of another time"), tmp_path)
    assert record.outcome is Outcome.FAILED and record.failure is not None
    assert "differ from the plan of the sweep" in record.failure.message


@pytest.fixture(autouse=True)
def fresh():
    torch_build.cache_clear()
    yield
    torch_build.cache_clear()


def test_it_says_what_torch_says():
    assert torch_build().version == str(torch.__version__)
    assert torch_build().cuda == torch.version.cuda


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install torch"):
        torch_build()
