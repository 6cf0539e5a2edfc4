"""A driver too old for the installed torch is said once, before anything runs; CUDA waits for its use."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from fake_nvml import H100, FakeNvml

from perfsweep.pipelines import api
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.trial import scene
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.gpus import TorchBuild, driver_refusal
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml(H100)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(environment, "torch_build", lambda: TorchBuild("2.13.0+cu130", "13.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_a_sweep_on_a_gpu_is_refused_before_it_is_planned(nvml: FakeNvml, command: Any) -> None:
    nvml.cuda = 12040
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    with pytest.raises(UnsupportedHere, match=r"knows CUDA 12\.4, and torch 2\.13\.0\+cu130 was built with"):
        api.plan(command(design), "")


@pytest.mark.parametrize("cuda", [13000, 13010, 14000])
def test_a_driver_that_fits_is_not(nvml: FakeNvml, cuda: int) -> None:
    nvml.cuda = 12040
    with pytest.raises(UnsupportedHere):
        environment.refuse_old_driver()
    nvml.cuda = cuda
    environment.refuse_old_driver()  # raises nothing


def test_unknown_is_no_refusal() -> None:
    assert driver_refusal(TorchBuild("2.13.0+cpu", None), "470.1", (11, 4)) is None
    assert driver_refusal(TorchBuild("2.13.0+cu130", "13.0"), None, None) is None


def test_a_limit_of_memory_does_not_start_cuda_and_holds_when_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    limits: list[tuple[float, int]] = []
    queued: list[Any] = []
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, index: limits.append((share, index))
    )
    monkeypatch.setattr(torch.cuda, "_queued_calls", queued)
    measure = type("Measure", (), {"memory_bytes": 2**30})
    spec = type("Spec", (), {"seed": 0, "world": 1, "node_ranks": 1, "meet": None, "measure": measure})
    scene._prepare_process(spec, Device("cuda", 2, "", 4 * 2**30), 0, tmp_path)  # type: ignore[arg-type]
    assert limits == []
    for call, _ in queued:
        call()
    assert limits == [(0.25, 0), (0.25, 1)]
