"""GPUs as NVML tells of them: which are ours, what they are, and who else uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import A100, GIB, H100, FakeNvml

from perfsweep.pipelines.trial.machine import environment, gpus
from perfsweep.pipelines.trial.machine.environment import comparison_keys, device_facts, facts, host_usage
from perfsweep.pipelines.trial.machine.gpus import Gpu, TorchBuild
from perfsweep.workloads.peaks import peak


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Installs fake GPUs; checks at the end that NVML was closed as often as it was opened."""
    installed: list[FakeNvml] = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def install(*devices: dict[str, Any], broken: bool = False) -> None:
        installed.append(FakeNvml(*devices, broken=broken))
        monkeypatch.setitem(sys.modules, "pynvml", installed[-1])

    yield install
    assert all(fake.open == 0 for fake in installed)


def built_with(monkeypatch: pytest.MonkeyPatch, cuda: str | None) -> None:
    """Another build of torch than the one installed."""
    monkeypatch.setattr(environment, "torch_build", lambda: TorchBuild("2.13.0", cuda))


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    built_with(monkeypatch, "13.0")


def test_nothing_here_asks_cuda(nvml: Any, cuda_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def refuse(*arguments: object) -> None:
        raise AssertionError("this may start CUDA in a process that is going to be forked")

    for call in ("_lazy_init", "is_available", "device_count", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, call, refuse)
    nvml(H100, H100 | {"uuid": "GPU-aaaa-2"})
    assert facts()["gpus"] and host_usage().gpus
    device = device_facts()
    assert (device.type, device.count, device.capability) == ("cuda", 2, (9, 0))
    assert device.memory_bytes == 80 * GIB
    assert comparison_keys(device).items() >= {"device": "NVIDIA H100", "driver": "580.1"}.items()


def test_without_nvml_there_are_no_gpus(nvml: Any, cuda_build: None, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(H100, broken=True)
    assert (facts()["gpus"], facts()["driver"], device_facts().type) == ([], None, "cpu")
    monkeypatch.setitem(sys.modules, "pynvml", None)  # what an import finds where the package is missing
    assert (facts()["gpus"], device_facts().type) == ([], "cpu")


def test_a_torch_without_cuda_uses_no_gpu(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(H100)
    built_with(monkeypatch, None)
    assert device_facts().type == "cpu"


def test_a_gpu_that_is_hidden_is_not_used(
    nvml: Any, cuda_build: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml(H100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert device_facts().type == "cpu"


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["NVIDIA H100", "NVIDIA A100"]),
        ("1,0", ["NVIDIA A100", "NVIDIA H100"]),
        ("0,7,1", ["NVIDIA H100"]),  # nothing counts from the first invalid number on
        ("-1", []),
        ("", []),
        ("GPU-ab", ["NVIDIA A100"]),
        ("GPU-a", []),  # ambiguous
    ],
)
def test_visible_gpus_are_those_cuda_would_see(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, variable: str | None, names: list[str]
) -> None:
    nvml(H100, A100)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [gpu.name for gpu in gpus.visible()] == names


def test_a_mig_instance_has_its_own_memory_and_the_clocks_of_its_gpu(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = H100 | {"sm_clock": 1980, "max_clock": 1990, "memory_clock": 2619, "ecc": [1, 0]}
    whole |= {
        "temperature": 41,
        "power": 350_500,
        "power_limit": 700_000,
        "heat": 5,
        "persistence": 1,
        "compute_mode": 3,
    }
    nvml(
        whole
        | {
            "mig": "MIG-1",
            "instance": {"name": "H100 1g.10gb", "uuid": "MIG-1", "memory": 10 * GIB, "whole": whole},
        }
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    (gpu,) = gpus.visible()
    assert gpu == Gpu(
        *("H100 1g.10gb MIG", "MIG-1", 10 * GIB, (9, 0)),
        sm_clock_mhz=1980,
        sm_clock_max_mhz=1990,
        memory_clock_mhz=2619,
        temperature_c=41,
        power_w=350.5,
        power_limit_w=700.0,
        ecc=True,
        persistence=True,
        compute_mode="one process",
        thermal_ns=5,
    )


@pytest.mark.parametrize("visible", [None, "0"])
def test_of_a_split_gpu_its_first_instance_is_seen_and_has_no_known_peak(
    nvml: Any, monkeypatch: pytest.MonkeyPatch, visible: str | None
) -> None:
    instance = {"name": "NVIDIA H100", "uuid": "MIG-1", "memory": 10 * GIB, "whole": H100}
    nvml(H100 | {"mig_mode": 1, "instance": instance})
    monkeypatch.setattr(gpus, "_slice_of_cuda", lambda visible: None)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    (gpu,) = gpus.visible()
    assert (gpu.name, gpu.uuid, gpu.memory_bytes) == ("NVIDIA H100 MIG", "MIG-1", 10 * GIB)
    assert peak(gpu.name) is None


def test_of_several_instances_the_one_that_torch_computes_on_is_told(
    nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first instance may be that of another job."""
    first, ours = (
        {"name": "NVIDIA H100", "uuid": f"MIG-{n}", "memory": n * 10 * GIB, "whole": H100} for n in (1, 2)
    )
    nvml(H100 | {"mig_mode": 1, "instance": first}, {"lost": True, "mig": "MIG-2", "instance": ours})
    asked = []

    def ask(command: list[str], **options: Any) -> Any:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "2\n" if options["text"] else b"2\n")

    gpus._slice_of_cuda.cache_clear()
    monkeypatch.setattr(gpus.subprocess, "run", ask)
    assert [gpus.visible()[0].uuid for _ in range(2)] == ["MIG-2", "MIG-2"]
    assert len(asked) == 1, "a process that imports torch is started once"
    gpus._slice_of_cuda.cache_clear()


def test_a_lost_gpu_ends_no_trial_and_keeps_its_number(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(H100 | {"lost": True}, A100)
    assert [gpu.name for gpu in gpus.visible()] == ["a GPU that does not answer", "NVIDIA A100"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert [gpu.name for gpu in gpus.visible()] == ["NVIDIA A100"]
    assert host_usage().gpus[0].name == "NVIDIA A100"


@pytest.mark.parametrize("question", ["reasons", "older_reasons"])
def test_throttle_reasons_are_named_by_drivers_old_and_new(nvml: Any, question: str) -> None:
    nvml(H100 | {question: 0x1 | 0x40, "heat": 5, "power": 350_500})
    (gpu,) = gpus.visible()
    assert (gpu.throttle, gpu.thermal_ns, gpu.power_w) == (("idle", "hardware thermal slowdown"), 5, 350.5)


def test_boards_of_one_name_with_other_power_limits_are_two_devices(nvml: Any, cuda_build: None) -> None:
    limits = []
    for milliwatts in (500_000, 700_000):
        nvml(H100 | {"power_limit": milliwatts})
        limits.append(comparison_keys(device_facts())["power_limit"])
    assert limits == ["500 W", "700 W"]


def test_a_server_of_mps_is_no_stranger_and_part_of_what_is_compared(
    nvml: Any, cuda_build: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_serves", lambda pid: pid == 77)
    monkeypatch.setattr(gpus, "foreign_processes", list)
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")
    nvml(H100 | {"pids": [77]})
    (gpu,) = gpus.visible()
    assert (gpu.mps, gpu.processes, gpu.foreign) == (True, 1, 0)
    assert comparison_keys(device_facts())["mps"] == "50 % of the GPU's processors"
    nvml(H100 | {"pids": [78]})
    assert gpus.visible()[0].foreign == 1
    assert "mps" not in comparison_keys(device_facts())


def test_a_server_of_mps_is_known_by_its_name(tmp_path: Path) -> None:
    server = tmp_path / "nvidia-cuda-mps-server"
    server.symlink_to("/bin/cat")
    child = subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin and child.stdout
    try:
        child.stdin.write(b"x\n")
        child.stdin.flush()
        child.stdout.readline()  # it answers, so the kernel has named it: `exec` frees its parent earlier
        assert gpus._serves(child.pid) and not gpus._serves(os.getpid())
    finally:
        child.communicate(b"")


def test_the_parent_of_a_process_with_an_odd_name_is_found(tmp_path: Path) -> None:
    odd = tmp_path / "odd) 1 (name"
    odd.symlink_to(sys.executable)
    child = subprocess.Popen([odd, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert gpus._parent(child.pid) == os.getpid()
    finally:
        child.communicate(b"\n")


def test_a_process_of_somebody_else_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {os.getpid(): 50, 50: 40, 40: 1, 60: 50, 70: 60, 80: 40, 90: 1}  # 50 is our parent, 80 our uncle
    monkeypatch.setattr(gpus, "_parent", lambda pid: tree.get(pid, 0))
    monkeypatch.setattr(os, "getppid", lambda: 50)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    assert gpus.foreign_processes([os.getpid(), 40, 50, 60, 70, 80, 90]) == [80, 90]
    tree[os.getpid()] = 1
    monkeypatch.setattr(os, "getppid", lambda: 1)  # as where the parent has ended
    assert gpus.foreign_processes([90]) == [90]


@pytest.mark.gpu
def test_nvml_and_cuda_agree_on_the_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    device = device_facts()
    properties = torch.cuda.get_device_properties(0)
    assert (device.count, device.name) == (torch.cuda.device_count(), properties.name)
    assert device.capability == (properties.major, properties.minor)
    # CUDA reports what is left beside the driver's own part.
    assert 0.95 * device.memory_bytes < properties.total_memory <= device.memory_bytes
    torch.ones(1, device="cuda")
    assert gpus.visible()[0].foreign == 0
