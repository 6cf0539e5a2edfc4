"""NVML over GPUs given as dictionaries."""

from __future__ import annotations

import types
from typing import Any

GIB = 2**30


class NVMLError(Exception):
    """What the bindings raise for every kind of failure."""


class FakeNvml(types.ModuleType):
    """The functions of the bindings in use, over GPUs given as dictionaries; a missing entry is an error."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_PERF_POLICY_THERMAL = 1, 2, 0, 1
    NVMLError = NVMLError

    def __init__(self, *devices: dict[str, Any], broken: bool = False) -> None:
        super().__init__("pynvml")
        self.devices, self.broken, self.open = devices, broken, 0
        self.cuda = 13000

    def nvmlInit(self) -> None:
        if self.broken:
            raise NVMLError("driver not loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    NVML_DEVICE_MIG_ENABLE = 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        assert self.open
        if self.devices[index].get("lost"):
            raise NVMLError("GPU is lost")
        return self.devices[index]

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> list[int]:
        return [self._entry(handle, "mig_mode")] * 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], index: int) -> dict[str, Any]:
        return self._entry(handle, "instance")

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"  # older bindings return bytes

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return self.cuda

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:
        return self._entry(next((d for d in self.devices if d.get("mig") == uuid), {}), "instance")

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: dict[str, Any]) -> dict[str, Any]:
        return self._entry(handle, "whole")

    def nvmlDeviceGetClockInfo(self, handle: dict[str, Any], kind: int) -> int:
        return self._entry(handle, "sm_clock" if kind == self.NVML_CLOCK_SM else "memory_clock")

    def nvmlDeviceGetViolationStatus(self, handle: dict[str, Any], policy: int) -> Any:
        return types.SimpleNamespace(violationTime=self._entry(handle, "heat"))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[Any]:
        return [types.SimpleNamespace(pid=pid) for pid in handle.get("pids", [])]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any]) -> Any:
        return types.SimpleNamespace(total=self._entry(handle, "memory"))

    def __getattr__(self, name: str) -> Any:
        known = {
            "nvmlDeviceGetName": "name",
            "nvmlDeviceGetUUID": "uuid",
            "nvmlDeviceGetEccMode": "ecc",
            "nvmlDeviceGetCpuAffinity": "cores",
            "nvmlDeviceGetPersistenceMode": "persistence",
            "nvmlDeviceGetComputeMode": "compute_mode",
            "nvmlDeviceGetCudaComputeCapability": "capability",
            "nvmlDeviceGetCurrentClocksEventReasons": "reasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons": "older_reasons",
            "nvmlDeviceGetMaxClockInfo": "max_clock",
            "nvmlDeviceGetTemperature": "temperature",
            "nvmlDeviceGetPowerUsage": "power",
            "nvmlDeviceGetEnforcedPowerLimit": "power_limit",
            "nvmlDeviceGetTotalEnergyConsumption": "energy_mj",
        }
        if name not in known:
            raise AttributeError(name)
        return lambda handle, *rest: self._entry(handle, known[name])

    @staticmethod
    def _entry(handle: dict[str, Any], key: str) -> Any:
        if key not in handle:
            raise NVMLError("not supported")
        return handle[key]


H100 = {"name": "NVIDIA H100", "uuid": "GPU-aaaa-1", "capability": (9, 0), "memory": 80 * GIB}


A100 = {"name": "NVIDIA A100", "uuid": "GPU-abbb-2", "capability": (8, 0), "memory": 40 * GIB}
