"""What differs between Slurm sites: typed fields of `conf/cluster/`, and the sbatch options they become."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm.errors import ClusterError
from slurm.fields import option, refusals

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

PLAIN_OPTIONS = ("partition", "qos", "account", "constraint", "exclude", "nodelist", "reservation", "wckey")
"""Fields of a profile that are sbatch options of the same name."""

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


REDACTED = "***"
"""What stands for the values of `env_set` wherever they are shown or kept."""


@dataclass
class SiteProfile:
    """One way of asking one site for resources; null fields are not written."""

    slurm_conf: str | None = option(
        None, "File slurm.conf; null: as the environment says; dev: that of the cluster of `make slurm-up`."
    )
    partition: str | None = option(None, "Partition of the jobs.")
    qos: str | None = option(None, "Quality of service of the jobs.")
    account: str | None = option(None, "Account that is charged.")
    constraint: str | None = option(None, "Features that the nodes must have.")
    exclude: str | None = option(None, "Nodes that must not be used.")
    nodelist: str | None = option(None, "Nodes that must be used.")
    reservation: str | None = option(None, "Reservation that the jobs run in.")
    gpus: int = option(1, "GPUs of each pack; 0: CPU only.", least=0)
    gpu_flag: str = option(
        "gres", "sbatch option that asks for GPUs; sites accept different ones.", choices=GPU_FLAGS
    )
    gpu_type: str | None = option(None, "Type of the GPUs, as the site names it.")
    memory: str | None = option(None, "Memory, such as 32G; null: what the site gives.")
    mem_flag: str = option(
        "mem", "sbatch option that asks for memory; none where a site forbids asking.", choices=MEM_FLAGS
    )
    cpus_per_task: int = option(4, "Cores of each process; one of them is for the pack's parent.", least=1)
    time_min: int = option(
        60, "Time limit of a job in minutes; a pack that needs longer continues in a requeue.", least=1
    )
    exclusive: bool = option(False, "Take whole nodes.")
    array_parallelism: int = option(16, "Most elements of an array that run at once.", least=1)
    max_array: int = option(200, "Most elements of an array.", least=1)
    max_submit: int | None = option(
        None, "Most array elements in the queue at once; null: until the site refuses."
    )
    setup: list[str] = option(list, "Lines of the batch script before the pack: modules, conda, venv.")
    teardown: list[str] = option(list, "Lines of the batch script after the pack; they need srun.")
    python: str | None = option(
        None, "Command that starts Python, maybe in a container; null: the interpreter of this command."
    )
    srun: bool = option(True, "Start the pack by srun; without it the shell becomes the job.")
    srun_args: list[str] = option(list, "Further options of srun, as they are.")
    signal_delay_s: int = option(
        60, "Seconds before the time limit at which a pack stops after its last finished round."
    )
    requeue: bool = option(True, "Let Slurm queue a pack again that was preempted or ran out of time.")
    max_retries: int = option(3, "Most further tries of a pack that was lost or preempted.", least=0)
    kill_invalid_dep: bool = option(True, "End jobs whose dependency can no longer be met.")
    env_allow: list[str] = option(list, "Names of further variables that jobs inherit.")
    env_set: dict[str, str] = option(
        dict, "Variables to set in jobs; their values are kept in a file for this user alone, nowhere else."
    )
    wckey: str | None = option(None, "Workload characterisation key of the jobs.")
    sbatch: list[str] = option(list, "Further options of sbatch, as they are, such as --licenses=a.")
    collect: bool = option(False, "Submit a last job that writes the comparison when all packs have ended.")
    poll_min_s: float = option(5.0, "Shortest pause between two questions to Slurm, seconds.", above=0)
    poll_max_s: float = option(60.0, "Longest pause between two questions to Slurm, seconds.", above=0)
    fs_delay_s: float = option(30.0, "Seconds after which a file that a node wrote is seen here.")
    heartbeat_s: float = option(30.0, "Seconds between two signs of life of a running pack.", above=0)

    def check(self) -> None:
        """Refuse what could never be submitted.

        Raises
        ------
        ClusterError
            A field is out of range, or an option is given twice; the message names the field.
        """
        for refusal in itertools.chain(refusals(self, "cluster."), self._contradictions()):
            raise ClusterError(refusal)

    def _contradictions(self) -> Iterator[str]:
        """Say which fields, each legal by itself, cannot stand together."""
        if self.memory and self.mem_flag == "none":
            yield "cluster.memory is set and cluster.mem_flag=none forbids asking; drop one of them"
        if self.teardown and not self.srun:
            yield "cluster.teardown needs cluster.srun=true: without srun the shell becomes the job"
        written = set(self.options(Shape.of(self))) | OWN_OPTIONS
        for text in self.sbatch:
            if (name := option_name(text)) in written:
                yield (
                    f"cluster.sbatch: {text} collides with what perfsweep writes itself; use the field for"
                    f" --{name}"
                )

    def options(self, shape: Shape) -> dict[str, Any]:
        """sbatch options for a job of this shape, by their long names."""
        options = {name: value for name in PLAIN_OPTIONS if (value := getattr(self, name)) is not None}
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
