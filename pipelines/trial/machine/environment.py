"""Where a trial runs, and whether something else disturbed it.

Facts are read from /proc, the environment and NVML. Of environment variables only those named here are kept:
a full dump would put tokens and passwords into records that people share.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sysconfig
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu, driver_refusal, torch_build
from perfsweep.pipelines.trial.machine.usage import DISPLACED_SHARE, Usage
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

STEAL_SHARE = 0.02
"""Share of CPU time that the hypervisor gave to other machines."""
SPARE_CORES = 0.2
"""Cores' worth of time by which a node may be overbooked: ticks of 10 ms and short-lived processes are no
neighbour."""
SHORTEST_LOOK_S = 0.2
"""Below this, ticks of 10 ms say too little."""
THERMAL_SHARE = 0.01
"""Share of a trial in which heat lowered a GPU's clocks."""

MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""What a client of MPS may have of a GPU, in per cent."""

NO_LIMIT = 1 << 60
"""From this many bytes on, a control group of version 1 means none: it has no word for that."""
_THROTTLED_S = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""What control groups of version 2 and 1 call it, and the unit."""

_CPU_FEATURES = """avx2 avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8
    asimd sve bf16 i8mm"""
_SLURM = """CLUSTER_NAME JOB_ID JOB_NAME JOB_PARTITION JOB_NODELIST ARRAY_JOB_ID ARRAY_TASK_ID STEP_ID
    NODEID PROCID LOCALID
    NNODES NTASKS CPUS_PER_TASK CPUS_ON_NODE MEM_PER_NODE MEM_PER_CPU JOB_GPUS RESTART_COUNT"""
_SETTINGS = """OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES MKL_NUM_THREADS KMP_AFFINITY KMP_BLOCKTIME
    GOMP_CPU_AFFINITY LD_PRELOAD MALLOC_CONF MALLOC_TRIM_THRESHOLD_ MALLOC_MMAP_THRESHOLD_ MALLOC_TOP_PAD_
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUBLAS_WORKSPACE_CONFIG
    NVIDIA_TF32_OVERRIDE CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PIPE_DIRECTORY
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
    TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCH_LOGS CXX"""


def facts() -> dict[str, Any]:
    """Facts about node, software, job and GPUs, fit for JSON. What a node does not tell is None or missing.

    `memory_limit_bytes` and `cpu_limit` (in cores) are those of the control group; `settings` are environment
    variables that change timings.
    """
    slurm = _kept(f"SLURM_{name}" for name in _SLURM.split())
    return {
        **_node(),
        **_versions(),
        "slurm": {name.removeprefix("SLURM_").lower(): value for name, value in slurm.items()},
        "settings": _kept(_SETTINGS.split()),
        "gpus": list(map(asdict, gpus.visible())),
    }


def comparison_keys(device: Device) -> dict[str, str]:
    """What records must share to be compared: the device's model and power limit, torch and driver."""
    keys = {"device": device.name, "torch": torch_build().version, "driver": ""}
    if device.type != "cuda":
        return keys
    first = next(iter(gpus.visible()), None)
    limit = first and first.power_limit_w  # boards of one name differ in it
    told = {} if limit is None else {"power_limit": f"{limit:.0f} W"}
    if first and first.mps:
        told["mps"] = f"{os.environ.get(MPS_SHARE, '100')} % of the GPU's processors"
    return {**keys, "driver": gpus.driver_version() or "", **told}


def device_facts() -> Device:
    """The device that trials use here, without initialising it."""
    if visible := gpus.visible() if torch_build().cuda else ():
        first = visible[0]
        count = 1 if first.sliced else len(visible)  # CUDA uses one MIG instance in each process
        return Device(
            "cuda", count, first.name, first.memory_bytes, first.capability, _cores(), can_compile()
        )
    own = {"cores": _cores(), "compiler": can_compile(), "vendor": _cpu_field("vendor_id")}
    return Device("cpu", 0, _cpu_model(), memory_here(), **own)


def memory_here() -> int:
    """Bytes of the node, or of the control group where that has less; 0 where neither tells."""
    return min(filter(None, (_memory_bytes("MemTotal"), _memory_limit())), default=0)


def refuse_old_driver() -> None:
    """Refuse at once what every arm would fail by, one after the other.

    Raises
    ------
    UnsupportedHere
        The driver is too old for the installed torch.
    """
    if refusal := driver_refusal(torch_build(), gpus.driver_version(), gpus.driver_cuda()):
        raise UnsupportedHere(refusal)


def can_compile() -> bool:
    """Whether torch.compile can build C++ here.

    It calls $CXX, or g++, and no other compiler it might find; its code includes Python.h.
    """
    compiler = os.environ.get("CXX") or "g++"
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()


@dataclass(frozen=True)
class HostUsage:
    """What may disturb a trial, at one moment. CPU times are of the whole node since it started.

    `busy_s` is what all processes used of it, `own_s` what this one did, at `at_s` of a clock that never
    jumps; None where the node does not tell. `throttled_s` is how long quotas of the control group stopped
    it.
    """

    cpu_s: float
    steal_s: float
    load: float
    node_cores: int
    gpus: tuple[Gpu, ...]
    busy_s: float | None = None
    own_s: float = 0.0
    at_s: float = 0.0
    throttled_s: float = 0.0


def host_usage(children: resource.struct_rusage | None = None) -> HostUsage:
    """Take one before and one after a trial; `children` did its work and are no children of this process."""
    times = _cpu_times()
    load = os.getloadavg()[0]
    own = os.times()
    return HostUsage(
        cpu_s=sum(times),
        steal_s=times[7] if len(times) > 7 else 0.0,
        load=load,
        node_cores=os.cpu_count() or 1,
        gpus=gpus.visible(),
        busy_s=sum(times[:3]) + sum(times[5:7]) if len(times) > 6 else None,  # without idle, iowait and steal
        own_s=sum(own[:4]) + (children.ru_utime + children.ru_stime if children else 0.0),
        at_s=time.monotonic(),
        throttled_s=_throttled_s(),
    )


def disturbance(
    before: HostUsage,
    after: HostUsage,
    wall_ns: int,
    region: Usage | None,
    threads: int | None,
    loaded: Iterable[Gpu] = (),
    *,
    subtracted: bool = False,
) -> tuple[str, ...]:
    """Reasons to distrust the times of a trial, as phrases; empty where it was undisturbed.

    Parameters
    ----------
    wall_ns, region : wall time of the timed region, and what the kernel counted in it. A run delay of an arm
        with workers or writers of its own may be their doing: give None then.
    threads : how many threads the arm computes with; None where that is not known
    loaded : GPUs as they were while they worked: before and after it they rest, and tell of no throttling
    subtracted : whether what others had of the core is no part of its time, so that they disturb nothing
    """
    reasons = [] if subtracted else _crowding(before, after, wall_ns, region, threads)
    # A tick of 10 ms is no share of less than a second.
    steal = (after.steal_s - before.steal_s) / max(after.cpu_s - before.cpu_s, 1.0)
    if steal > STEAL_SHARE:
        reasons.append(f"{steal:.1%} of CPU time went to other virtual machines")
    # GPUs were looked at before and after the turns of all arms, where there were several.
    looked_s = max(wall_ns / 1e9, after.at_s - before.at_s)
    return (*reasons, *_gpu_disturbance(before.gpus, after.gpus, looked_s, loaded))


def _crowding(
    before: HostUsage, after: HostUsage, wall_ns: int, region: Usage | None, threads: int | None
) -> list[str]:
    """Say how others had cores that the trial needed."""
    reasons = []
    foreign = foreign_cores(before, after) if threads is not None else None
    load = max(before.load, after.load)
    if foreign is not None and foreign + (threads or 0) > after.node_cores + SPARE_CORES:
        reasons.append(f"other processes used {foreign:.1f} of {after.node_cores} cores")
    elif foreign is None and load > after.node_cores:
        reasons.append(f"load {load:.1f} on {after.node_cores} cores")
    if region is not None and region.displaced(wall_ns):
        reasons.append(
            f"others took its core {region.displacements} times"
            if region.run_delay_ns is None
            else f"others had its core for {region.run_delay_ns / wall_ns:.1%} of the time"
        )
    stopped_s = after.throttled_s - before.throttled_s
    if stopped_s > DISPLACED_SHARE * (after.at_s - before.at_s):
        reasons.append(f"a quota of CPU time stopped it for {stopped_s:.2f} s")
    return reasons


def foreign_cores(before: HostUsage, after: HostUsage) -> float | None:
    """Cores' worth of time that others used between two moments; None if unknown or too short a time.

    Unlike the load average it forgets what ended before the trial began.
    """
    elapsed_s = after.at_s - before.at_s
    if before.busy_s is None or after.busy_s is None or elapsed_s < SHORTEST_LOOK_S:
        return None
    return max(0.0, (after.busy_s - before.busy_s) - (after.own_s - before.own_s)) / elapsed_s


def _gpu_disturbance(
    before: Iterable[Gpu], after: Iterable[Gpu], looked_s: float, loaded: Iterable[Gpu] = ()
) -> list[str]:
    reasons = []
    earlier, working = ({gpu.uuid: gpu for gpu in some} for some in (before, loaded))
    for now in after:
        then, during = earlier.get(now.uuid, now), working.get(now.uuid, now)
        for reason in sorted(gpus.DISTURBING.intersection(then.throttle + during.throttle + now.throttle)):
            reasons.append(f"{now.uuid}: {reason}")
        heat_s = ((now.thermal_ns or 0) - (then.thermal_ns or 0)) / 1e9
        if heat_s > THERMAL_SHARE * looked_s:
            reasons.append(f"{now.uuid}: clocks lowered by heat for {heat_s:.2f} s")
        if foreign := max(then.foreign, now.foreign):
            reasons.append(f"{now.uuid}: {foreign} other process{'es' if foreign > 1 else ''}")
    return reasons


def _node() -> dict[str, Any]:
    times, flags, mhz = _cpu_times(), _cpu_field("flags", "Features").split(), _cpu_field("cpu MHz")
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "cpu_model": _cpu_model(),
        "cpu_features": [name for name in _CPU_FEATURES.split() if name in flags],
        "cpu_governor": _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")).strip() or None,
        "cpu_mhz": float(mhz) if mhz else None,  # of the first core now; a virtual machine's nominal one
        "node_cores": os.cpu_count(),
        "cores": _cores(),
        "affinity": _ranges(_affinity()),
        "cpu_limit": _cpu_limit(),
        "memory_bytes": _memory_bytes("MemTotal"),
        "memory_available_bytes": _memory_bytes("MemAvailable"),
        "memory_limit_bytes": _memory_limit(),
        "load": list(os.getloadavg()),
        "huge_pages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")).strip() or None,
        "steal_share": times[7] / sum(times) if len(times) > 7 else None,
    }


def _versions() -> dict[str, Any]:
    import torch

    cudnn = torch.backends.cudnn.version() if torch.version.cuda else None  # asks the library, not the device
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
        "cudnn": cudnn,
        "driver": gpus.driver_version(),
    }


def _kept(names: Iterable[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _affinity() -> list[int]:
    """Numbers of the cores this process may run on."""
    return sorted(os.sched_getaffinity(0))


def _cores() -> int:
    return len(_affinity())


def _ranges(numbers: list[int]) -> str:
    """``0-3,8`` for [0, 1, 2, 3, 8]."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _cpu_times() -> list[float]:
    """Seconds of the node's cores: user, nice, system, idle, iowait, irq, softirq, steal."""
    first = _read(Path("/proc/stat")).partition("\n")[0].split()
    per_second = os.sysconf("SC_CLK_TCK")
    return [int(ticks) / per_second for ticks in first[1:9]]  # guest times that follow are part of user time


def _cpu_field(*names: str) -> str:
    """The first of these fields in /proc/cpuinfo; x86 and ARM name them differently."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""


def _cpu_model() -> str:
    """Its name, with the generation where that has numbers: virtual machines call several by one name."""
    name = _cpu_field("model name", "Processor", "cpu model") or platform.processor() or platform.machine()
    family, model = _cpu_field("cpu family"), _cpu_field("model")
    return f"{name}, family {family} model {model}" if family and model else name


def _memory_bytes(field: str) -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def _memory_limit() -> int | None:
    """The tightest limit of this process's control group and those around it."""
    texts = (*_control_group("memory.max"), *_control_group("memory.limit_in_bytes", "memory"))
    limits = [int(text) for text in map(str.strip, texts) if text.isdigit()]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _cpu_limit() -> float | None:
    """Cores' worth of time that the control group allows."""
    quotas = [text.split() for text in _control_group("cpu.max")]
    parts = (_control_group(f"cpu.cfs_{part}_us", "cpu") for part in ("quota", "period"))
    quotas += [" ".join(texts).split() for texts in zip(*parts, strict=True)]
    return min(
        (int(quota[0]) / int(quota[1]) for quota in quotas if len(quota) == 2 and quota[0].isdigit()),
        default=None,
    )


def _throttled_s() -> float:
    """Seconds, summed over cores, in which the control group had used up its quota of CPU time."""
    texts = (*_control_group("cpu.stat"), *_control_group("cpu.stat", "cpu"))
    fields = [line.split() for text in texts for line in text.splitlines()]
    return sum(int(field[1]) * _THROTTLED_S[field[0]] for field in fields if field[0] in _THROTTLED_S)


def _control_group(file: str, controller: str = "") -> list[str]:
    """The contents of `file` in this process's control group and all above it.

    Groups of version 1 have a tree for each controller, those of version 2 one for all.
    """
    root = Path("/sys/fs/cgroup", controller)
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = root / path.removeprefix("/")
            return [_read(folder / file) for folder in (group, *group.parents) if folder.is_relative_to(root)]
    return []


def _read(file: Path) -> str:
    """The text of a file of the kernel, empty where there is none."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
