"""What differs from one Slurm site to the next: the typed fields of `conf/cluster/`, and the sbatch options
they become."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm.errors import ClusterError

GPU_FLAGS = ("gres", "gpus-per-node", "gpus-per-task", "gpus")
MEM_FLAGS = ("mem", "mem-per-cpu", "mem-per-gpu", "none")

ALWAYS_EXPORTED = (
    *(
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LC_ALL",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "SLURM_CONF",
    ),
    *(
        "MODULEPATH",
        "MODULESHOME",
        "LMOD_CMD",
        "BASH_ENV",
        "CONDA_PREFIX",
        "CONDA_EXE",
        "VIRTUAL_ENV",
        "CUDA_HOME",
    ),
    *("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME", "WANDB_MODE", "WANDB_BASE_URL", "PYTHONDONTWRITEBYTECODE"),
)
"""Variables a job inherits where they are set; everything else, secrets above all, stays with the submitter.
"""

OWN_OPTIONS = frozenset(
    (
        *(
            "array",
            "comment",
            "error",
            "export",
            "job-name",
            "kill-on-invalid-dep",
            "no-requeue",
            "open-mode",
            "output",
        ),
        *("parsable", "requeue", "signal", "wckey", "wrap"),
    )
)
"""sbatch options that perfsweep writes itself."""


@dataclass
class SiteProfile:
    """One way of asking one site for resources; null fields are not written."""

    slurm_conf: str | None = None  # null: as the environment says; `dev`: the cluster of `make slurm-up`
    partition: str | None = None
    qos: str | None = None
    account: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    nodelist: str | None = None
    reservation: str | None = None
    gpus: int = 1  # for each pack; 0: CPU only
    gpu_flag: str = "gres"  # gres, gpus-per-node, gpus-per-task or gpus: sites accept different ones
    gpu_type: str | None = None
    memory: str | None = None  # such as 32G
    mem_flag: str = "mem"  # mem, mem-per-cpu, mem-per-gpu, or none where a site forbids asking
    cpus_per_task: int = 4  # one of them is the parent's
    time_min: int = 60  # a pack that needs longer continues in a requeue
    exclusive: bool = False
    array_parallelism: int = 16
    max_array: int = 200
    max_submit: int | None = None  # array elements in the queue at once; null: until the site refuses
    setup: list[str] = field(default_factory=list)  # modules, conda, venv: lines of the batch script
    teardown: list[str] = field(default_factory=list)
    python: str | None = None  # null: the interpreter of this command; may be a container's command
    srun: bool = True
    srun_args: list[str] = field(default_factory=list)
    signal_delay_s: int = 60
    requeue: bool = True
    max_retries: int = 3
    kill_invalid_dep: bool = True
    env_allow: list[str] = field(default_factory=list)  # more variables to hand over, by name
    env_set: dict[str, str] = field(default_factory=dict)  # variables to set; written into the batch script
    wckey: str | None = None
    sbatch: list[str] = field(default_factory=list)  # further options, verbatim, such as --licenses=a
    collect: bool = False  # a last job writes the comparison when all packs have ended
    poll_min_s: float = 5.0
    poll_max_s: float = 60.0
    fs_delay_s: float = 30.0  # how late a file of a node may be seen here
    heartbeat_s: float = 30.0  # how often a running pack says that it lives

    def check(self) -> None:
        """Refuse what could never be submitted.

        Raises
        ------
        ClusterError
            A field is out of range, or an option is given twice; the message names the field.
        """
        for name, choices in (("gpu_flag", GPU_FLAGS), ("mem_flag", MEM_FLAGS)):
            if getattr(self, name) not in choices:
                raise ClusterError(
                    f"cluster.{name}={getattr(self, name)} is unknown; choose from: {', '.join(choices)}"
                )
        lowest = {
            "gpus": 0,
            "cpus_per_task": 1,
            "time_min": 1,
            "array_parallelism": 1,
            "max_array": 1,
            "max_retries": 0,
        }
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise ClusterError(f"cluster.{name}={getattr(self, name)} must be at least {low}")
        for name in ("poll_min_s", "poll_max_s", "heartbeat_s"):
            if getattr(self, name) <= 0:
                raise ClusterError(f"cluster.{name}={getattr(self, name)} must be above zero")
        if self.memory and self.mem_flag == "none":
            raise ClusterError(
                "cluster.memory is set and cluster.mem_flag=none forbids asking; drop one of them"
            )
        if self.teardown and not self.srun:
            raise ClusterError(
                "cluster.teardown needs cluster.srun=true: without srun the shell becomes the job"
            )
        written = set(self.options(Shape.of(self))) | OWN_OPTIONS
        for text in self.sbatch:
            name = option_name(text)
            if name in written:
                raise ClusterError(
                    f"cluster.sbatch: {text} collides with what perfsweep writes itself; use the field for"
                    f" --{name}"
                )

    def options(self, shape: Shape) -> dict[str, Any]:
        """sbatch options for a job of this shape, by their long names."""
        options: dict[str, Any] = {
            name: value
            for name in (
                "partition",
                "qos",
                "account",
                "constraint",
                "exclude",
                "nodelist",
                "reservation",
                "wckey",
            )
            if (value := getattr(self, name)) is not None
        }
        options |= {"time": self.time_min, "nodes": 1, "ntasks-per-node": 1, "cpus-per-task": shape.cpus}
        if self.exclusive:
            options["exclusive"] = True
        if shape.gpus:
            kind = f"{self.gpu_type}:" if self.gpu_type else ""
            count = f"{kind}{shape.gpus}"
            options[self.gpu_flag] = f"gpu:{count}" if self.gpu_flag == "gres" else count
        if self.memory:
            options[self.mem_flag] = self.memory
        return options

    def resources(self, shape: Shape) -> str:
        """What a pack of this shape gets, in words."""
        gpus = f"{shape.gpus} GPU{'s' if shape.gpus > 1 else ''}" if shape.gpus else "no GPU"
        memory = f", {self.memory} ({self.mem_flag})" if self.memory else ""
        where = f" in partition {self.partition}" if self.partition else ""
        return f"{gpus}, {shape.cpus} cores{memory}, at most {self.time_min} min{where}"


@dataclass(frozen=True)
class Shape:
    """Resources of one pack; packs of different shape go into different arrays."""

    gpus: int
    cpus: int

    @classmethod
    def of(cls, site: SiteProfile, ranks: int = 1) -> Shape:
        """The shape of a pack whose trials have up to `ranks` processes."""
        gpus = max(site.gpus, ranks) if site.gpus else 0
        return cls(gpus, site.cpus_per_task * max(1, ranks))


def option_name(text: str) -> str:
    """``licenses`` of ``--licenses=a``; short options keep their letter.

    Raises
    ------
    ClusterError
        The text is no option.
    """
    words = shlex.split(text)
    if not words or not words[0].startswith("-"):
        raise ClusterError(f"cluster.sbatch: {text!r} is no option of sbatch; write it as --name=value")
    short = {
        "p": "partition",
        "q": "qos",
        "A": "account",
        "C": "constraint",
        "t": "time",
        "c": "cpus-per-task",
        "a": "array",
    }
    name = words[0].lstrip("-").partition("=")[0]
    return short.get(name, name)


def exported(site: SiteProfile, environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that jobs inherit."""
    return [name for name in dict.fromkeys((*ALWAYS_EXPORTED, *site.env_allow)) if name in environ]
