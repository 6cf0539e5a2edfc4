"""A pack that finds less than was asked for ends with a sentence, and measures nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recorded import build

from perfsweep.pipelines.execution import allotment, pack
from perfsweep.pipelines.execution.allotment import VARIABLE, Allotment, refuse_unfit, refuse_unseen_gpus
from perfsweep.pipelines.store.writers import newest
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.installed import TorchBuild
from perfsweep.slurm.element import LACKING, UNFIT
from perfsweep.slurm.errors import ClusterError
from perfsweep.workloads.api import Device

CPU = Device("cpu", cores=2)
A100 = Device("cuda", 1, "NVIDIA A100-SXM4-80GB", cores=2)
GPUS = "CUDA_VISIBLE_DEVICES"
SLICE = Device("cuda", 1, "NVIDIA H100 1g.10gb MIG", cores=2)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch for CUDA, on a node of 8 cores and 16 GiB."""
    monkeypatch.setattr(allotment, "torch_build", lambda: TorchBuild("2.13.0+cu130", "13.0"))
    monkeypatch.setattr(environment, "memory_here", lambda: 16 * 2**30)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(environment, "refuse_old_driver", lambda: None)
    monkeypatch.setattr(environment.gpus, "visible", tuple)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("asked", "device", "own", "says"),
    [
        (Allotment(gpus=1), CPU, {GPUS: ""}, "torch 2.13.0+cu130 sees 0: CUDA_VISIBLE_DEVICES is ''; choose"),
        (Allotment(gpus=2), SLICE, {GPUS: "MIG-1,MIG-2"}, "sees 1: one process uses one MIG slice"),
        (
            Allotment(gpus=1, gpu_type="h100"),
            A100,
            {},
            "of type h100, and this is NVIDIA A100-SXM4-80GB: corr",
        ),
        (Allotment(gpus=1, by_torch=False), CPU, {}, "1 GPU, NVML sees 0: CUDA_VISIBLE_DEVICES is "),
        (Allotment(cores=4), CPU, {}, "4 cores, and this job may use 2: "),
        (
            Allotment(memory_bytes=32 * 2**30),
            CPU,
            {},
            "32.0 GiB of memory, and this job may use 16.0 GiB: low",
        ),
        (
            Allotment(scratch=True),
            CPU,
            {"PERFSWEEP_SCRATCH": "/proc/nowhere"},
            "/proc/nowhere cannot be written (",
        ),
    ],
    ids=["no GPU", "two MIG slices", "another type", "programs of its own", "cores", "memory", "scratch"],
)
def test_what_is_missing_is_said_with_what_was_asked_for(
    asked: Allotment, device: Device, own: dict, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {VARIABLE: asked.text, **own}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(allotment.Unfit) as refused:
        refuse_unfit(device, tmp_path / "p000" / "log.txt")
    assert str(refused.value).startswith("asked for ") and says in str(refused.value)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("asked", "device"),
    [
        (Allotment(gpus=1, gpu_type="a100_3g.20gb"), A100),
        (Allotment(gpus=1, cores=2, memory_bytes=16 * 2**30), A100),
        (Allotment(cores=64), Device("cpu", cores=8)),  # declared larger than it is, and nothing confines it
    ],
)
def test_what_is_as_it_was_asked_for_passes(
    asked: Allotment, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, asked.text)
    refuse_unfit(device, tmp_path / "log.txt")
    assert (tmp_path / "log.txt").exists(), "the clock was looked at, which is the last question"


def test_a_pack_measures_nothing_on_the_cpu_of_a_job_with_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build(tmp_path / "sweep").folder
    before = newest(folder, "p000")
    monkeypatch.setattr(pack.interruption, "listen", lambda: None)
    monkeypatch.setattr(allotment, "torch_build", lambda: TorchBuild("2.13.0+cpu", None))
    monkeypatch.setenv(VARIABLE, Allotment(gpus=1).text)
    assert pack.main([str(folder.path), "p000"]) == LACKING, "no node has what this torch lacks"
    assert capsys.readouterr().out.startswith("asked for 1 GPU, torch 2.13.0+cpu sees 0: install a torch")
    monkeypatch.setattr(allotment, "torch_build", lambda: TorchBuild("2.13.0+cu130", "13.0"))
    monkeypatch.setattr(environment.gpus, "visible", tuple)
    assert pack.main([str(folder.path), "p000"]) == UNFIT, "another node may have it"
    assert newest(folder, "p000") == before, "a copy elsewhere goes on"


@pytest.mark.parametrize(
    ("environ", "refused"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "1"}, True),
        ({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "1", "CUDA_VISIBLE_DEVICES": ""}, False),
        ({"SLURM_JOB_ID": "7"}, False),
    ],
)
def test_in_a_job_with_gpus_a_sweep_is_measured_on_the_cpu_only_where_that_is_said(
    environ: dict[str, str], refused: bool
) -> None:
    refuse_unseen_gpus(A100, environ)
    if not refused:
        refuse_unseen_gpus(CPU, environ)
        return
    with pytest.raises(ClusterError, match=r"this job has 1 GPU, torch \S+ sees 0: .*CUDA_VISIBLE_DEVICES= "):
        refuse_unseen_gpus(CPU, environ)
