"""What differs between Slurm sites: typed fields of `conf/cluster/`, their sbatch options, and prices."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

from perfsweep.fields import option, refusals
from perfsweep.slurm.errors import ClusterError

GPU_FLAGS = ("gres", "gpus-per-node", "gpus-per-task", "gpus")
MEM_FLAGS = ("mem", "mem-per-cpu", "mem-per-gpu", "none")
CPU_FLAGS = ("cpus-per-task", "cpus-per-gpu")

_EXPORTED = """
    PATH HOME USER LOGNAME SHELL LANG LC_ALL TZ TMPDIR LD_LIBRARY_PATH SLURM_CONF
    MODULEPATH MODULESHOME LMOD_CMD BASH_ENV CONDA_PREFIX CONDA_EXE VIRTUAL_ENV CUDA_HOME
    HF_HOME TORCH_HOME XDG_CACHE_HOME WANDB_MODE WANDB_BASE_URL PYTHONDONTWRITEBYTECODE
    http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS"""

ALWAYS_EXPORTED = tuple(_EXPORTED.split())
"""Variables a job inherits where they are set, proxies and certificates for tracking=online among them;
everything else, secrets above all, stays with the submitter."""

PLAIN_OPTIONS = ("partition", "qos", "account", "constraint", "exclude", "nodelist", "reservation", "wckey")
"""Fields of a profile that are sbatch options of the same name."""

OF_THE_SHELL = ("partition", "account", "qos", "constraint", "reservation", "wckey")
"""Fields that our profiles fill from sbatch's own variables, such as SBATCH_PARTITION."""

_OWN_OPTIONS = """
    array comment error export job-name kill-on-invalid-dep no-requeue open-mode output
    parsable requeue signal wckey wrap"""

OWN_OPTIONS = frozenset(_OWN_OPTIONS.split())
"""sbatch options that perfsweep writes itself."""


CONTROL = re.compile(r"[^\t\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")
"""What no line of a batch script may hold: a line break, another control character, what is no text."""

REDACTED = "***"
"""Shown and kept in place of the values of `env_set`."""


@dataclass
class SiteProfile:
    """One way of asking one site for resources; null fields are not written."""

    slurm_conf: str | None = option(None, "File slurm.conf; null: as the environment says.")
    partition: str | None = option(
        None, "Partition of the jobs; of several, as in a100,h100, the one where a job can start first."
    )
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
    memory: str | None = option(None, "Memory of a job, such as 32G; null: what the site gives.")
    mem_flag: str = option(
        "mem", "sbatch option that asks for memory; none where a site forbids asking.", choices=MEM_FLAGS
    )
    cpus_per_task: int = option(4, "Cores of each process; one of them is for the pack's parent.", least=1)
    cpu_flag: str = option(
        "cpus-per-task",
        "sbatch option that asks for cores; some sites take cpus-per-gpu alone, where a job has GPUs.",
        choices=CPU_FLAGS,
    )
    time_min: int = option(
        60, "Time limit of a job in minutes; a pack that needs longer continues in a requeue.", least=1
    )
    nodes: int = option(1, "Nodes of each pack; the ranks of its trials are spread over them.", least=1)
    ntasks_per_node: int | None = option(
        None, "Ranks of a trial on one node, filled in their order; null: spread evenly.", least=1
    )
    exclusive: bool = option(False, "Take whole nodes.")
    packs_per_job: int = option(
        1,
        "Packs that share a job, side by side, each with its own `gpus` and cores: to fill a node.",
        least=1,
    )
    scratch: str | None = option(
        None,
        "Folder on the node's own disk, in which jobs have one each for temporary files; a shell reads it:"
        " $TMPDIR; null: none.",
    )
    array_parallelism: int = option(16, "Most elements of an array that run at once.", least=1)
    max_array: int = option(200, "Most elements of an array.", least=1)
    max_submit: int | None = option(
        None, "Most array elements in the queue at once; null: until the site refuses."
    )
    setup: list[str] = option(list, "Lines of the batch script before the pack: modules, conda, venv.")
    teardown: list[str] = option(list, "Lines of the batch script after the pack; they need srun.")
    python: str | None = option(
        None,
        "Words that start Python, maybe in a container: apptainer exec --nv image.sif python; null: the"
        " interpreter of this command.",
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
    submit_inside: bool = option(
        False, "Inside a job, such as a notebook's: submit packs from there, instead of measuring in it."
    )
    wckey: str | None = option(None, "Workload characterisation key of the jobs.")
    sbatch: list[str] = option(list, "Further options of sbatch, as they are, such as --licenses=a.")
    network: bool | None = option(
        None,
        "Whether nodes reach the W&B server, by a proxy or without, which a probe checks; null: unknown.",
    )
    price: str | None = option(
        None,
        "What an hour costs, with its unit: 2.5/GPU-hour or 1.10 EUR per node-hour; null: columns of cost are"
        " withheld.",
    )
    collect: bool = option(
        False,
        "Submit a last job that writes the comparison when all packs have ended; it asks for no GPU, and"
        " `cluster.sbatch` is not for it.",
    )
    poll_min_s: float = option(
        30.0,
        "Shortest pause between two questions to Slurm, seconds; a pack that did all is seen sooner, by its"
        " own record.",
        above=0,
    )
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
        if self.price is not None:
            parse_price(self.price)

    def _contradictions(self) -> Iterator[str]:
        """Say which fields cannot be written into a batch script, and which contradict one another."""
        for one in fields(self):
            if _has_control_character(getattr(self, one.name)):
                yield (
                    f"cluster.{one.name}: a line break or another control character is no part of a line of"
                    " the batch script; write it without, or as further entries of a list"
                )
        if self.memory and self.mem_flag == "none":
            yield "cluster.memory is set and cluster.mem_flag=none forbids asking; drop one of them"
        if self.scratch is not None and not self.scratch.strip():
            yield "cluster.scratch is empty; name a folder, or leave it out"
        if self.python and (why := _no_words(self.python)):
            yield f"cluster.python={self.python!r} is no command ({why}); write the words that start Python"
        if self.signal_delay_s >= 60 * self.time_min:
            yield (
                f"cluster.signal_delay_s={self.signal_delay_s} leaves nothing of"
                f" cluster.time_min={self.time_min}; lower the first or raise the second"
            )
        if self.teardown and not self.srun:
            yield "cluster.teardown needs cluster.srun=true: without srun the shell becomes the job"
        if self.gpus > 1 and re.fullmatch(r"(.*[^\w.])?\d+g\.\d+gb", self.gpu_type or ""):
            yield (
                f"cluster.gpus={self.gpus} of type {self.gpu_type}: one process uses one MIG slice. Say"
                " cluster.gpus=1, or ask for whole GPUs."
            )
        if self.poll_max_s < self.poll_min_s:
            yield (
                f"cluster.poll_max_s={self.poll_max_s:g} is below cluster.poll_min_s={self.poll_min_s:g};"
                " raise the first or lower the second"
            )
        if self.packs_per_job > 1 and self.nodes > 1:
            yield "cluster.packs_per_job shares one node and cluster.nodes takes several; use one of them"
        written = set(self.options(Shape.of(self))) | OWN_OPTIONS
        for text in self.sbatch:
            name = sbatch_option(text)[0]
            if name == "clusters":
                yield (
                    f"cluster.sbatch: {text}: jobs are followed on the cluster that answers here alone. Start"
                    " the sweep on a machine of that cluster, or name its slurm.conf in cluster.slurm_conf"
                )
            if [sbatch_option(other)[0] for other in self.sbatch].count(name) > 1:
                yield f"cluster.sbatch: --{name} is given twice, and sbatch takes one; join them"
            if name in written:
                yield (
                    f"cluster.sbatch: {text} collides with what perfsweep writes itself; use the field for"
                    f" --{name}"
                )

    def options(self, shape: Shape) -> dict[str, Any]:
        """sbatch options for a job of this shape, by their long names."""
        if shape.fields:
            return replace(self, **dict(shape.fields)).options(replace(shape, fields=()))
        options = {name: value for name in PLAIN_OPTIONS if (value := getattr(self, name))}
        # One task on each node starts all ranks there, so that each may use what any of them leaves idle.
        options |= {"time": self.time_min, "nodes": shape.nodes, "ntasks-per-node": 1}
        by_gpu = self.cpu_flag == "cpus-per-gpu" and shape.gpus > 0
        options |= (
            {"cpus-per-gpu": math.ceil(shape.cpus / shape.gpus)} if by_gpu else {"cpus-per-task": shape.cpus}
        )
        if self.exclusive:
            options["exclusive"] = True
        if shape.gpus:
            kind = f"{self.gpu_type}:" if self.gpu_type else ""
            count = f"{kind}{shape.gpus * (shape.nodes if self.gpu_flag == 'gpus' else 1)}"
            options[self.gpu_flag] = f"gpu:{count}" if self.gpu_flag == "gres" else count
        if self.memory:
            options[self.mem_flag] = self.memory
        return options

    def resources(self, shape: Shape) -> str:
        """What a pack of this shape gets, in words."""
        if shape.fields:
            return replace(self, **dict(shape.fields)).resources(replace(shape, fields=()))
        gpus = f"{shape.gpus} GPU{'s' if shape.gpus > 1 else ''}" if shape.gpus else "no GPU"
        memory = f", {self.memory} ({self.mem_flag})" if self.memory else ""
        kind = f" ({self.gpu_type})" if shape.gpus and self.gpu_type else ""
        where = f" in partition {self.partition}" if self.partition else ""
        together = f", up to {self.packs_per_job} packs in a job" if self.packs_per_job > 1 else ""
        each = f" on each of {shape.nodes} nodes" if shape.nodes > 1 else ""
        most = f"at most {self.time_min} min"
        return f"{gpus}{kind}, {shape.cpus} cores{memory}{each}, {most}{where}{together}"


def _has_control_character(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_control_character, (*value, *value.values())))
    if isinstance(value, (list, tuple)):
        return any(map(_has_control_character, value))
    if is_dataclass(value):
        return _has_control_character(vars(value))
    return isinstance(value, str) and CONTROL.search(value) is not None


@dataclass(frozen=True)
class Shape:
    """Resources of one job on each of its nodes; jobs of different shape go into different arrays.

    `fields` are further fields of the site profile that are different for it.
    """

    gpus: int
    cpus: int
    nodes: int = 1
    fields: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, site: SiteProfile, ranks: int = 1, resources: Mapping[str, Any] | None = None) -> Shape:
        """The shape of a job whose trials have up to `ranks` processes; `resources` are fields of its own."""
        own = replace(site, **(resources or {}))
        further = {name: value for name, value in (resources or {}).items() if name not in _IN_SHAPE}
        beside = min(ranks, own.ntasks_per_node or math.ceil(ranks / own.nodes))  # on the fullest node
        gpus = max(own.gpus, beside) if own.gpus else 0
        return cls(gpus, own.cpus_per_task * max(1, beside), own.nodes, tuple(sorted(further.items())))

    @classmethod
    def of_job(cls, site: SiteProfile) -> Shape:
        """The shape of a job with as many packs as may share one."""
        one, packs = cls.of(site), site.packs_per_job
        return cls(packs * one.gpus, packs * one.cpus, one.nodes)


_IN_SHAPE = ("gpus", "cpus_per_task")


def _no_words(text: str) -> str:
    """Why a shell finds no command in a text; empty where it does."""
    try:
        return "" if shlex.split(text) else "it is blank"
    except ValueError as error:
        return str(error)


def sbatch_option(text: str) -> tuple[str, str | bool]:
    """Long name and value of one option of sbatch, written as any shell would take it; True without a value.

    Raises
    ------
    ClusterError
        The text is not one option.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ClusterError(f"cluster.sbatch: {text!r} cannot be read ({error})") from error
    if "=" in text.split(" ", 1)[0] and not any(word.startswith("-") for word in words[1:]):
        words = [" ".join(words)]  # blanks within a value need no quotes of their own
    if not words or not words[0].startswith("-") or len(words) > 2:
        raise ClusterError(
            f"cluster.sbatch: {text!r} is no option of sbatch, or more than one; write each as --name=value"
        )
    name, equals, value = words[0].partition("=")
    if not name.startswith("--"):
        if name[1:2] not in _SHORT:
            raise ClusterError(f"cluster.sbatch: {text!r} is unknown here; write it as --name=value")
        name, value, equals = _SHORT[name[1]], words[0][2:], words[0][2:]
    if len(words) == 2 and equals:
        raise ClusterError(f"cluster.sbatch: {text!r} is more than one option; write each as --name=value")
    given = words[1] if len(words) == 2 else value
    return name.lstrip("-"), given if given or equals else True


_SHORT_OPTIONS = """
    A=account a=array b=begin C=constraint c=cpus-per-task d=dependency D=chdir e=error F=nodefile G=gpus
    H=hold J=job-name L=licenses M=clusters m=distribution N=nodes n=ntasks o=output O=overcommit
    p=partition q=qos S=core-spec s=oversubscribe t=time w=nodelist x=exclude"""

_SHORT = {word[0]: word[2:] for word in _SHORT_OPTIONS.split()}


def of_the_shell(site: SiteProfile, environ: Mapping[str, str]) -> Iterator[str]:
    """Say which of sbatch's variables a profile has taken, and which of them say nothing here."""
    given = {name: value for name, value in environ.items() if name.startswith("SBATCH_") and value}
    taken = [f"SBATCH_{name.upper()}" for name in OF_THE_SHELL]
    taken = [name for name in taken if getattr(site, name[7:].lower()) == given.get(name, "")]
    if taken:
        yield "as this shell says: " + " ".join(f"{name}={given[name]}" for name in taken)
    if unused := sorted({*given} - {*taken}):
        yield f"not used of this shell: {', '.join(unused)}; fields of cluster say what sbatch is asked for"


def exported(site: SiteProfile, environ: Mapping[str, str]) -> list[str]:
    """Names of the variables that jobs inherit."""
    return [name for name in dict.fromkeys((*ALWAYS_EXPORTED, *site.env_allow)) if name in environ]


PRICE_REMEDY = "write it as 2.5/GPU-hour or 2.5/node-hour, with a currency after the amount where you like"

_PRICE = re.compile(
    r"(?P<amount>[+-]?[\d.,]+(?:e[+-]?\d+)?)\s*(?P<currency>[^\W\d]{1,4}|[$€£¥])?"
    r"\s*(?:/|\s+per\s+)\s*(?P<per>gpu|node)(?:[-_ ]?(?:hour|hr|h))\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Price:
    """An amount of a currency (empty: not said) for an hour of a GPU or a node."""

    amount: float
    currency: str
    per: Literal["GPU", "node"]

    def __str__(self) -> str:
        return f"{self.amount:g}{self.currency and f' {self.currency}'} per {self.per}-hour"

    def of(self, seconds: float, count: int) -> float:
        """What so many GPUs or nodes cost for some seconds."""
        return self.amount * seconds / 3600 * count


def parse_price(text: str) -> Price:
    """Read a price such as ``2.5/GPU-hour`` or ``1.10 EUR per node-hour``.

    Raises
    ------
    ClusterError
        It has no unit, is no number, or is not above zero.
    """
    match = _PRICE.fullmatch(text.strip())
    try:
        amount = float(match["amount"]) if match else float("nan")
    except ValueError:
        match, amount = None, float("nan")
    if match is None:
        bare = re.fullmatch(r"[+-]?[\d.]+\s*\S{0,4}", text.strip())
        raise ClusterError(f"cluster.price={text} {'has no unit' if bare else 'is no price'}; {PRICE_REMEDY}")
    if not 0 < amount < float("inf"):
        raise ClusterError(f"cluster.price={text} must be above zero; leave it out where nothing is charged")
    per: Literal["GPU", "node"] = "GPU" if match["per"].lower() == "gpu" else "node"
    return Price(amount, match["currency"] or "", per)
