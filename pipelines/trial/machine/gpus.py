"""What NVML tells of the GPUs this process may use, and whether their driver fits the installed torch.

None of it creates a CUDA context here, or imports torch. A context in a parent would break its forked
children, and would itself be a process on the GPU. Where NVML is missing there are simply no GPUs to tell of;
a question that a GPU or driver does not answer is None.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from perfsweep.workloads.errors import ConfigError

BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Variable by which a process of CUDA numbers its GPUs as NVML does, and not the fastest first."""

ASK_S = 120.0

# Bits of NVML's reasons for clocks below the highest, as it names them.
_REASONS = {
    0x01: "idle",
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
_COMPUTE_MODES = {0: "shared", 2: "prohibited", 3: "one process"}
# A power cap is what a heavy kernel meets by itself; these come from outside the measured code.
DISTURBING = frozenset(
    {"hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "power brake"}
)


@dataclass(frozen=True)
class Gpu:
    """One visible GPU, or MIG instance, as it is now.

    Attributes
    ----------
    capability : None where it could not be asked
    throttle : reasons why clocks are not at their highest
    ecc, persistence, compute_mode : settings of the administrator that change times or who may use it
    thermal_ns : time since the driver was loaded in which heat lowered the clocks
    processes, foreign : compute processes on it, and the ones of other users
    mps : whether a server of NVIDIA's Multi-Process Service works on it, through which others may compute
        unseen
    """

    name: str
    uuid: str
    memory_bytes: int
    capability: tuple[int, int] | None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    throttle: tuple[str, ...] = ()
    ecc: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    thermal_ns: int | None = None
    processes: int = 0
    foreign: int = 0
    mps: bool = False

    @property
    def sliced(self) -> bool:
        """Whether this is a MIG instance, of which a process of CUDA uses one."""
        return "MIG" in self.name


def visible() -> tuple[Gpu, ...]:
    """GPUs that CUDA_VISIBLE_DEVICES leaves, in its order.

    Numbers are taken in the order of the PCI bus, as processes that start with `BY_BUS` take them.
    """
    with handles() as (nvml, found):
        return tuple(_describe(nvml, handle) for handle in found) if nvml else ()


def driver_version() -> str | None:
    """Version of the NVIDIA driver."""
    with _nvml() as nvml:
        return _text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)) if nvml else None


def driver_cuda() -> tuple[int, int] | None:
    """Newest version of CUDA that the driver knows, as (major, minor)."""
    with _nvml() as nvml:
        number = _ask(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2) if nvml else None
    return None if number is None else (number // 1000, number % 1000 // 10)


@dataclass(frozen=True)
class TorchBuild:
    """Version of the installed torch, and the CUDA toolkit it was built with, or None."""

    version: str
    cuda: str | None


@cache
def torch_build() -> TorchBuild:
    """What the installed torch says about itself in its `version.py`, which imports nothing.

    Raises
    ------
    ConfigError
        No torch is installed for this interpreter.
    """
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise ConfigError("torch is not installed for this Python: pip install torch")
    facts = runpy.run_path(str(Path(found.origin).with_name("version.py")))
    return TorchBuild(version=str(facts["__version__"]), cuda=facts["cuda"])


_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""For each major version of CUDA the first driver that runs what any minor version of it built [1].

[1] NVIDIA, CUDA Compatibility: minor version compatibility
"""


def driver_refusal(build: TorchBuild, driver: str | None, cuda: tuple[int, int] | None) -> str | None:
    """Say in a sentence that the driver is too old for the installed torch, or None.

    Parameters
    ----------
    driver, cuda : version of the driver, and of CUDA that it knows; None where it does not tell
    """
    if build.cuda is None or cuda is None:
        return None
    built = int(build.cuda.partition(".")[0])
    if cuda[0] >= built:
        return None
    oldest = f" (driver {_OLDEST_DRIVER[built]} or newer)" if built in _OLDEST_DRIVER else ""
    return (
        f"NVIDIA driver {driver} knows CUDA {cuda[0]}.{cuda[1]}, and torch {build.version} was built with"
        f" CUDA {build.cuda}: have the driver updated{oldest}, or install a torch built with CUDA {cuda[0]}"
    )


@contextmanager
def handles() -> Iterator[tuple[ModuleType | None, list[Any]]]:
    """NVML, or None where there is none, and its handles of the visible GPUs, for as long as it is open."""
    with _nvml() as nvml:
        yield nvml, _visible_handles(nvml) if nvml else []


def name_of(nvml: ModuleType, handle: Any) -> str:
    """The UUID of a GPU, or words where it does not answer."""
    uuid = None if handle is None else _text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle))
    return uuid or "a GPU that does not answer"


def is_slice(nvml: ModuleType, handle: Any) -> bool:
    """Whether a handle is that of a MIG instance."""
    return _ask(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) is not None


@contextmanager
def _nvml() -> Iterator[ModuleType | None]:
    """NVML while it is open, or None where there is none."""
    try:
        import pynvml
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or none that answers
        yield None
        return
    try:
        yield pynvml
    finally:
        _ask(pynvml, pynvml.nvmlShutdown)  # refuses where a GPU was lost meanwhile


def _ask(nvml: ModuleType, question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where this GPU, driver or permission has none."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    """Releases of the bindings differ in whether they return bytes."""
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _visible_handles(nvml: ModuleType) -> list[Any]:
    count = _ask(nvml, nvml.nvmlDeviceGetCount) or 0
    # One that is lost or not for us keeps its number: CUDA's numbers of the others do not shift.
    every = [_ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [_slice_or_whole(nvml, handle) for handle in every]
    handles: list[Any] = []
    for item in chosen.split(","):
        found = _find(nvml, every, item.strip())
        if not found:
            break  # CUDA, too, ignores everything from the first invalid entry on
        handles += found
    return handles


def _slice_or_whole(nvml: ModuleType, handle: Any) -> Any:
    """The instance of a GPU that is split which CUDA sees, one alone; else the GPU."""
    mode = None if handle is None else _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return handle
    # Which one CUDA takes, and which of them this process may use, NVML does not say.
    uuid = _slice_of_cuda(os.environ.get("CUDA_VISIBLE_DEVICES"))
    found = _ask(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid) if uuid else None
    return found or _ask(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, 0)


@cache
def _slice_of_cuda(visible: str | None) -> str | None:
    """UUID of the instance that torch computes on in a process of its own; None where it does not say."""
    code = "import torch; print(torch.cuda.get_device_properties(0).uuid)"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        return None
    return f"MIG-{done.stdout.strip().removeprefix('MIG-')}" if done.returncode == 0 else None


def _find(nvml: ModuleType, every: list[Any], item: str) -> list[Any]:
    """The GPU that a number, a UUID or the beginning of one names, in a list; an empty one if none does."""
    if item.isdigit():
        return [_slice_or_whole(nvml, handle) for handle in every[int(item) :][:1]]
    if item.startswith("MIG-"):
        found = _ask(nvml, nvml.nvmlDeviceGetHandleByUUID, item)
        return [] if found is None else [found]
    matching = [
        handle
        for handle in every
        if item and handle and _text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)).startswith(item)
    ]
    return matching if len(matching) == 1 else []


def _describe(nvml: ModuleType, handle: Any) -> Gpu:
    if handle is None:
        return Gpu("a GPU that does not answer", "", 0, None)
    # A MIG instance has its own memory and processes, and the clocks of the GPU it is part of.
    whole = _ask(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle
    name = _text(_ask(nvml, nvml.nvmlDeviceGetName, handle))
    if whole is not handle and "MIG" not in name:
        name = f"{name} MIG"  # its peak is not that of the whole
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    power, limit = (
        _ask(nvml, ask, whole) for ask in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetEnforcedPowerLimit)
    )
    heat = _ask(nvml, nvml.nvmlDeviceGetViolationStatus, whole, nvml.NVML_PERF_POLICY_THERMAL)
    capability = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, whole)
    pids = [process.pid for process in _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()]
    return Gpu(
        name=name,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        memory_bytes=int(memory.total) if memory else 0,
        capability=tuple(capability) if capability else None,
        sm_clock_mhz=_ask(nvml, nvml.nvmlDeviceGetClockInfo, whole, nvml.NVML_CLOCK_SM),
        sm_clock_max_mhz=_ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, whole, nvml.NVML_CLOCK_SM),
        memory_clock_mhz=_ask(nvml, nvml.nvmlDeviceGetClockInfo, whole, nvml.NVML_CLOCK_MEM),
        temperature_c=_ask(nvml, nvml.nvmlDeviceGetTemperature, whole, nvml.NVML_TEMPERATURE_GPU),
        power_w=None if power is None else power / 1000,
        power_limit_w=None if limit is None else limit / 1000,
        ecc=_first_as_bool(_ask(nvml, nvml.nvmlDeviceGetEccMode, whole)),
        persistence=_first_as_bool(_ask(nvml, nvml.nvmlDeviceGetPersistenceMode, whole)),
        compute_mode=_COMPUTE_MODES.get(_ask(nvml, nvml.nvmlDeviceGetComputeMode, whole)),
        throttle=_throttle_reasons(nvml, whole),
        thermal_ns=None if heat is None else int(heat.violationTime),
        processes=len(pids),
        foreign=len(foreign_processes([pid for pid in pids if not _serves(pid)])),
        mps=any(map(_serves, pids)),
    )


def _first_as_bool(mode: Any) -> bool | None:
    """Whether a mode is on; of a pair the current one, not the one after the next restart."""
    first = mode[0] if isinstance(mode, (list, tuple)) else mode
    return None if first is None else bool(first)


def _throttle_reasons(nvml: ModuleType, handle: Any) -> tuple[str, ...]:
    newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    bits = _ask(nvml, newer, handle) if newer else None
    if bits is None:  # drivers before 535 know the question by its older name
        bits = _ask(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    return tuple(name for bit, name in _REASONS.items() if (bits or 0) & bit)


def _serves(pid: int) -> bool:
    """Whether a process is a server of MPS; the kernel keeps 15 letters of its name."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("nvidia-cuda-mps")
    except OSError:
        return False


def foreign_processes(pids: list[int]) -> list[int]:
    """Those of `pids` that are neither ancestors of this process nor descend from its parent.

    Other ranks and arms of one allocation share the parent. Processes of another PID namespace cannot be told
    apart and are left out: in a container NVML may name this very process by a number it does not know.
    """
    parent, ours = os.getppid(), {os.getpid(), *_ancestors(os.getpid())}
    return [
        pid
        for pid in pids
        if Path(f"/proc/{pid}").exists() and pid not in ours and parent not in _ancestors(pid)
    ]


def _ancestors(pid: int) -> list[int]:
    """Parent, grandparent and so on, without the process 1 that everything descends from."""
    found = []
    while (pid := _parent(pid)) > 1:
        found.append(pid)
    return found


def _parent(pid: int) -> int:
    try:
        # The second field is a name in brackets that may itself hold brackets and spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
