"""A pack that finds less than was asked for ends with a sentence, and measures nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recorded import build

from perfsweep.pipelines.config.types import ClusterConfig
from perfsweep.pipelines.execution import allotment, pack
from perfsweep.pipelines.execution.allotment import VARIABLE, Allotment, refuse_unfit, refuse_unseen_gpus
from perfsweep.pipelines.store.writers import newest
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.gpus import TorchBuild
from perfsweep.slurm.element import LACKING, UNFIT
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.site import Shape
from perfsweep.workloads.api import Device

CPU = Device("cpu", cores=2)
A100 = Device("cuda", 1, "NVIDIA A100-SXM4-80GB", cores=2)
TORCH = "torch 2.13.0+cu130"
BRING = (
    "choose another cluster.gpu_flag or partition, and in a container bring the driver in (apptainer exec"
    " --nv)"
)
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
        (Allotment(gpus=1), CPU, {GPUS: ""}, f"1 GPU, {TORCH} sees 0: CUDA_VISIBLE_DEVICES is ''; {BRING}"),
        (
            Allotment(gpus=2),
            SLICE,
            {GPUS: "MIG-1,MIG-2"},
            f"2 GPUs, {TORCH} sees 1: one process uses one MIG slice; ask for whole GPUs, or for one slice"
            " (cluster.gpus=1)",
        ),
        (
            Allotment(gpus=1, gpu_type="h100"),
            A100,
            {},
            f"a GPU of type h100, and this is {A100.name}: correct cluster.gpu_type, or ask the site",
        ),
        (
            Allotment(gpus=1, by_torch=False),
            CPU,
            {GPUS: "0"},
            f"1 GPU, NVML sees 0: CUDA_VISIBLE_DEVICES is '0'; {BRING}",
        ),
        (
            Allotment(cores=4),
            CPU,
            {},
            "4 cores, and this job may use 2: ask the site which option gives cores to a step"
            " (cluster.srun_args), or lower cluster.cpus_per_task",
        ),
        (
            Allotment(memory_bytes=18 * 2**30),
            CPU,
            {},
            "18.0 GiB of memory, and this job may use 16.0 GiB: lower cluster.memory, or ask the site why",
        ),
        (
            Allotment(scratch=True),
            CPU,
            {"PERFSWEEP_SCRATCH": "/proc/nowhere"},
            "a folder on the node's own disk, and /proc/nowhere cannot be written (No such file or"
            " directory): bind it in the container, or name another in cluster.scratch",
        ),
        (
            Allotment(scratch=True),
            CPU,
            {},
            "a folder on the node's own disk, and PERFSWEEP_SCRATCH cannot be written (it is not set):"
            " bind it in the container, or name another in cluster.scratch",
        ),
    ],
    ids=["no GPU", "MIG", "another type", "programs of its own", "cores", "memory", "scratch", "nowhere"],
)
def test_what_is_missing_is_said_with_what_was_asked_for(
    asked: Allotment, device: Device, own: dict, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERFSWEEP_SCRATCH", raising=False)
    for name, value in {VARIABLE: asked.text, **own}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(allotment.Unfit) as refused:
        refuse_unfit(device, tmp_path / "p000" / "log.txt")
    assert str(refused.value) == f"asked for {says}"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(("ahead_s", "way"), [(61.0, "fast"), (-61.0, "slow"), (59.0, ""), (-59.0, "")])
def test_a_clock_that_goes_by_another_time_than_the_file_system_is_told(
    ahead_s: float, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.txt"
    log.touch()
    monkeypatch.setattr(Path, "touch", lambda self: None)
    monkeypatch.setattr(allotment.time, "time", lambda: log.stat().st_mtime + ahead_s)
    told = [f"this node's clock is 61 s {way} by the file system's: ask the site to set it by NTP"]
    assert list(Allotment()._lacks(CPU, log)) == told[: bool(way)]


@pytest.mark.parametrize(("flag", "gib"), [("mem", 3), ("mem-per-cpu", 12), ("mem-per-gpu", 6), ("none", 0)])
def test_a_job_is_to_get_what_its_profile_asks_for_a_pack(flag: str, gib: int) -> None:
    site = ClusterConfig(gpu_type="a100", mem_flag=flag, memory="3G", scratch="/scratch")
    asked = Allotment.of(site, Shape(2, 4), by_torch=False)
    assert asked == Allotment(2, "a100", 4, gib * 2**30, scratch=True, by_torch=False)
    assert Allotment.here({VARIABLE: asked.text}) == asked and Allotment.here({}) is None
    bare = Allotment.of(ClusterConfig(memory="all"), Shape(0, 1))
    assert bare == Allotment(cores=1, memory_bytes=0), "no amount is none"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("asked", "device"),
    [
        (Allotment(gpus=1, gpu_type="a100_3g.20gb"), A100),
        (Allotment(gpus=1, cores=2, memory_bytes=16 * 2**30), A100),
        (Allotment(cores=64), Device("cpu", cores=8)),  # declared larger than it is, and nothing confines it
        (Allotment(scratch=True), CPU),
    ],
)
def test_what_is_as_it_was_asked_for_passes(
    asked: Allotment, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, asked.text)
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path / "of/job/7"))
    log = tmp_path / "sweep/packs/p000/log.txt"
    for _ in range(2):  # of several nodes, each makes what is not there yet
        refuse_unfit(device, log)
    assert log.exists(), "the clock was looked at, which is the last question"


def test_a_pack_measures_nothing_on_the_cpu_of_a_job_with_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = build(tmp_path / "sweep").folder
    before = newest(folder, "p000")
    monkeypatch.setattr(pack, "listen_for_signals", lambda: None)
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
