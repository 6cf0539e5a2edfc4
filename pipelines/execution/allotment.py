"""What a job was to get, held against what it finds: where something is missing, nothing is measured.

Every pack asks this before its first trial. A job that asked for a GPU and sees none would else measure
everything on the CPU, to the end, and call that an answer.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from perfsweep.pipelines.trial.machine import environment, gpus
from perfsweep.pipelines.trial.machine.gpus import torch_build
from perfsweep.slurm.element import UNFIT
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.site import Shape, SiteProfile
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere

VARIABLE = "PERFSWEEP_ALLOTMENT"
"""By which a job hears what was asked for it; empty where it runs on this machine as it is."""

CLOCK_S = 60.0
"""How far a node's clock may be from that of the file system: signs of life are told apart by both."""

MEMORY_SHARE = 0.9
"""Of the memory that was asked for: sites keep some of it for themselves."""

_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MODEL = re.compile(r"(?<![a-z0-9])(?:t4|l4|(?:gh|gb|[abhlpv])\d{2,3}s?)(?![a-z0-9])")
"""Models of NVIDIA's that sites call their GPUs by; a site's other names say nothing about the GPU."""


class Unfit(ClusterError):
    """This node lacks what was asked for; another node may have it."""

    status: ClassVar[int] = UNFIT


@dataclass(frozen=True)
class Allotment:
    """What one pack was to get on its first node.

    Attributes
    ----------
    gpus, gpu_type : GPUs that its trials are planned on, 0 where on none; what the site calls them
    cores : that Slurm was asked for; 0: nothing was
    memory_bytes : of its job, at least; 0: nothing was asked for
    scratch : whether it has a folder on the node's own disk
    by_torch : whether the GPUs count that torch sees; else all that the node has for it
    """

    gpus: int = 0
    gpu_type: str = ""
    cores: int = 0
    memory_bytes: int = 0
    scratch: bool = False
    by_torch: bool = True

    @classmethod
    def of(cls, site: SiteProfile, shape: Shape, by_torch: bool = True) -> Allotment:
        """Read it from a site profile and the shape of a pack."""
        own = replace(site, **dict(shape.fields))
        shares = {"mem": 1, "mem-per-cpu": shape.cpus, "mem-per-gpu": shape.gpus}.get(own.mem_flag, 0)
        memory_bytes, scratch = shares * _bytes(own.memory or ""), own.scratch is not None
        return cls(shape.gpus, own.gpu_type or "", shape.cpus, memory_bytes, scratch, by_torch)

    @classmethod
    def here(cls, environ: Mapping[str, str] = os.environ) -> Allotment | None:
        """Read what this process was to get; None where it was started without a request."""
        text = environ.get(VARIABLE)
        return cls(**json.loads(text)) if text else None

    @property
    def text(self) -> str:
        """Return what `here` reads."""
        return json.dumps(asdict(self))

    def refuse(self, device: Device, log: Path | None = None) -> None:
        """Hold it against this node; `log` lies on the file system of the sweeps, by whose clock it goes.

        Raises
        ------
        ClusterError
            The installed torch sees no GPU anywhere.
        Unfit
            This node lacks something; the message says what was asked for and what there is.
        """
        if self.gpus and self.by_torch and torch_build().cuda is None:
            raise ClusterError(_gpus(self.gpus, device))
        for lack in self._lacks(device, log):
            raise Unfit(lack)

    def _lacks(self, device: Device, log: Path | None) -> Iterator[str]:
        if self.gpus:
            yield from self._lacks_gpus(device) if self.by_torch else self._lacks_gpus_of_the_node()
        # A process that may use all cores of its node is not confined: a node may be declared too large.
        if device.cores < min(self.cores, os.cpu_count() or 1):
            yield (
                f"asked for {self.cores} cores, and this job may use {device.cores}: ask the site which"
                " option gives cores to a step (cluster.srun_args), or lower cluster.cpus_per_task"
            )
        memory = environment.memory_here()
        if memory and memory < MEMORY_SHARE * self.memory_bytes:
            yield (
                f"asked for {self.memory_bytes / 2**30:.1f} GiB of memory, and this job may use"
                f" {memory / 2**30:.1f} GiB: lower cluster.memory, or ask the site why"
            )
        if self.scratch:
            yield from _scratch(os.environ.get("PERFSWEEP_SCRATCH", ""))
        if log is not None:
            yield from _clock(log)

    def _lacks_gpus(self, device: Device) -> Iterator[str]:
        if _seen(device) < self.gpus:
            yield _gpus(self.gpus, device)
        yield from _other_model(self.gpu_type, device.name)

    def _lacks_gpus_of_the_node(self) -> Iterator[str]:
        found = gpus.visible()
        if len(found) < self.gpus:
            yield f"asked for {_counted(self.gpus)}, NVML sees {len(found)}: {_remedy()}"
        yield from _other_model(self.gpu_type, found[0].name if found else "")


def refuse_unfit(device: Device, log: Path | None = None) -> None:
    """Refuse to measure where this process was to get more than it finds.

    Raises
    ------
    ClusterError
        It was; see `Allotment.refuse`. Or the driver is too old for the installed torch.
    """
    if (allotment := Allotment.here()) is not None:
        allotment.refuse(device, log)
    if device.type == "cuda":
        try:
            environment.refuse_old_driver()
        except UnsupportedHere as reason:
            raise Unfit(str(reason)) from reason


def refuse_unseen_gpus(device: Device, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse to measure on the CPU in a job that has GPUs, unless CUDA_VISIBLE_DEVICES says so.

    Raises
    ------
    ClusterError
        Slurm has given this job GPUs, and torch sees none.
    """
    given = environ.get("SLURM_GPUS_ON_NODE", "0") if "SLURM_JOB_ID" in environ else "0"
    hidden = environ.get("CUDA_VISIBLE_DEVICES") == ""
    if given.isdigit() and int(given) and device.type != "cuda" and not hidden:
        raise ClusterError(
            f"{_gpus(int(given), device, 'this job has')}. To measure on its CPU:"
            " CUDA_VISIBLE_DEVICES= perfsweep ..."
        )


def _seen(device: Device) -> int:
    return device.count if device.type == "cuda" else 0


def _counted(gpus: int) -> str:
    return f"{gpus} GPU{'s' if gpus > 1 else ''}"


def _gpus(asked: int, device: Device, begin: str = "asked for") -> str:
    build = torch_build()
    if build.cuda is None:
        remedy = "install a torch that is built with CUDA, or ask for no GPU (cluster.gpus=0)"
    elif "MIG" in device.name:
        remedy = "one process uses one MIG slice; ask for whole GPUs, or for one slice (cluster.gpus=1)"
    else:
        remedy = _remedy()
    return f"{begin} {_counted(asked)}, torch {build.version} sees {_seen(device)}: {remedy}"


def _remedy() -> str:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    told = "is not set" if visible is None else f"is {visible!r}"
    return (
        f"CUDA_VISIBLE_DEVICES {told}; choose another cluster.gpu_flag or partition, and in a container bring"
        " the driver in (apptainer exec --nv)"
    )


def _other_model(asked: str, found: str) -> Iterator[str]:
    """Say that a GPU is of another model than was asked for, where both names tell it."""
    wanted, got = (set(_MODEL.findall(name.lower())) for name in (asked.replace("_", "-"), found))
    if wanted and got and not wanted & got:
        yield (
            f"asked for a GPU of type {asked}, and this is {found}: correct cluster.gpu_type, or ask the site"
        )


def _scratch(folder: str) -> Iterator[str]:
    if why := _closed(folder):
        yield (
            f"asked for a folder on the node's own disk, and {folder or 'PERFSWEEP_SCRATCH'} cannot be"
            f" written ({why}): bind it in the container, or name another in cluster.scratch"
        )


def _closed(folder: str) -> str:
    """Why nothing can be written in a folder; empty where it can."""
    if not folder:
        return "it is not set"
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)  # the batch script makes it on the first node alone
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _clock(log: Path) -> Iterator[str]:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()  # by the clock of the file system, where that is another machine's
    apart_s = time.time() - log.stat().st_mtime
    if abs(apart_s) > CLOCK_S:
        way = "fast" if apart_s > 0 else "slow"
        yield (
            f"this node's clock is {abs(apart_s):.0f} s {way} by the file system's: ask"
            " the site to set it by NTP"
        )


def _bytes(text: str) -> int:
    """Bytes of Slurm's ``32G``, in MiB without a letter; 0 where it is no number."""
    found = _MEMORY.fullmatch(text.strip())
    return int(found[1]) * _BYTES[(found[2] or "M").upper()] if found else 0
