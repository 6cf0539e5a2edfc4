"""What a cluster offers, and what it would say to a site profile: asked before anything waits in a queue."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfsweep.slurm import batch
from perfsweep.slurm.client import SlurmClient, Unreachable
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import SETUP_SIGN
from perfsweep.slurm.journal import Journal
from perfsweep.slurm.site import Shape, SiteProfile, exported
from perfsweep.slurm.submitter import Submitter

_LIMITS = "MaxArraySize MaxJobCount MinJobAge KillWait JobRequeue PreemptType PreemptMode SelectType"
_PARTITION_FIELDS = "%P|%a|%l|%D|%T|%c|%m|%G|%f"
UNLIMITED = ("UNLIMITED", "infinite")


@dataclass(frozen=True)
class Partition:
    """A partition, and the nodes of one kind and state in it."""

    name: str
    default: bool
    up: bool
    limit: str
    nodes: str
    state: str
    cores: str
    memory_mb: str
    gres: str
    features: str


@dataclass(frozen=True)
class Diagnosis:
    """What was found; `refused` is None where a test submission would be accepted."""

    version: str
    limits: dict[str, str]
    partitions: tuple[Partition, ...]
    accounting: bool
    accepted: str
    refused: str | None
    warnings: tuple[str, ...]


def diagnose(site: SiteProfile, conf: str | None) -> Diagnosis:
    """Ask the cluster.

    Raises
    ------
    Unreachable
        No controller answers.
    """
    client = SlurmClient(conf)
    config = client.config()
    partitions = partitions_of(client)
    accepted, refused = _test_submission(site, client)
    accounting = _accounting_works(client)
    with suppress(ClusterError):  # it answers nothing: the client learns whether squeue is for us
        client.run("squeue", "--me", "-h", "-o", "%i")
    # What a batch script starts with.
    inherited = {name: client.env[name] for name in exported(site, client.env)} | dict(site.env_set)
    return Diagnosis(
        version=config.get("SLURM_VERSION", "unknown"),
        limits={name: config[name] for name in _LIMITS.split() if name in config},
        partitions=partitions,
        accounting=accounting,
        accepted=accepted,
        refused=refused,
        warnings=(
            *_warnings(site, config, partitions),
            *client.forbidden.values(),
            *rehearse(site, inherited),
        ),
    )


def several_gpu_types(site: SiteProfile, partitions: tuple[Partition, ...]) -> str | None:
    """Warn where nothing says which of several GPU types a pack gets; None where it makes no difference."""
    if not site.gpus or site.gpu_type or site.constraint or site.nodelist:
        return None
    gres = ",".join(p.gres for p in _ours(site, partitions))
    types = sorted(set(re.findall(r"gpu:([\w.-]+):\d", gres)))
    if len(types) < 2:
        return None
    return (
        f"the nodes have GPUs of several types ({', '.join(types)}) and cluster.gpu_type is open: packs on"
        f" different types are not compared with one another; choose one, such as cluster.gpu_type={types[0]}"
    )


def partitions_of(client: SlurmClient) -> tuple[Partition, ...]:
    """Ask for the partitions of a cluster, a row for each kind and state of nodes.

    Raises
    ------
    ClusterError
        There was no usable answer.
    """
    return tuple(_partitions(client.run("sinfo", "-h", "-o", _PARTITION_FIELDS)))


def _ours(site: SiteProfile, partitions: tuple[Partition, ...]) -> list[Partition]:
    """The partitions that jobs of this profile may land in."""
    names = (site.partition or "").split(",")
    return [p for p in partitions if p.name in names or (site.partition is None and p.default)]


def minutes(limit: str) -> float | None:
    """Minutes of Slurm's ``days-hours:minutes:seconds``, None for no limit.

    A single number with colons is read from the right as squeue and sinfo print it: ``30:00`` are thirty
    minutes.
    """
    if limit in UNLIMITED:
        return None
    days, _, rest = limit.rpartition("-")
    parts = [int(part) for part in re.findall(r"\d+", rest)]
    seconds = sum(value * 60**place for place, value in enumerate(reversed(parts)))
    return (int(days or 0) * 86400 + seconds) / 60


def _partitions(text: str) -> list[Partition]:
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 8]
    return [Partition(name.rstrip("*"), name.endswith("*"), up == "up", *rest) for name, up, *rest in rows]


def _test_submission(site: SiteProfile, client: SlurmClient) -> tuple[str, str | None]:
    """What sbatch answers to our own script when it is only asked."""
    with tempfile.TemporaryDirectory(prefix="perfsweep-doctor-") as folder:
        journal = Journal(Path(folder) / "journal")
        submitter = Submitter(site, Path(folder), "doctor", Path(folder), client, journal, time.time)
        script = Path(folder) / "script.sh"
        script.write_text(submitter.text(Shape.of_job(site)))
        try:
            client.run("sbatch", "--test-only", str(script))
        except Unreachable:
            raise
        except ClusterError as error:
            return "", _objection(str(error))
    return "a pack as this profile describes it would be accepted", None


def _objection(text: str) -> str:
    """sbatch's last word, with the field of the profile it is about, and what the site says of it."""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    words = batch.slurms_words(said) or said[-1:]
    message = ": ".join(words).removeprefix("allocation failure: ")
    field = batch.refusal("\n".join(words))
    return f"{f'cluster.{field}: ' if field else ''}{message}{batch.sites_words(said, words)}"


def _accounting_works(client: SlurmClient) -> bool:
    try:
        client.run("sacct", "-X", "-n", "-S", "now")
    except ClusterError:
        return False
    return True


def _warnings(site: SiteProfile, config: dict[str, str], partitions: tuple[Partition, ...]) -> list[str]:
    ours = _ours(site, partitions)
    found = [several] if (several := several_gpu_types(site, partitions)) else []
    limits = [limit for p in ours if (limit := minutes(p.limit)) is not None]
    if limits and site.time_min > min(limits):
        found.append(
            f"cluster.time_min={site.time_min} is above the partition's limit of {min(limits):g} min: jobs"
            " may wait for ever"
        )
    if ours and not any(p.up for p in ours):
        down = ", ".join(dict.fromkeys(p.name for p in ours))
        found.append(f"partition {down} is down: jobs wait until it comes up")
    if site.gpus and ours and not any("gpu" in p.gres for p in ours):
        where = ", ".join(dict.fromkeys(p.name for p in ours))
        found.append(f"cluster.gpus={site.gpus}, and no node of partition {where} has a GPU")
    if site.requeue and config.get("JobRequeue") == "0":
        found.append("JobRequeue=0 on this cluster: packs continue only while a command follows the sweep")
    return found


TIMEOUT_S = 60.0

_HARMLESS = "module ml source . export unset conda mamba micromamba spack ulimit"
"""Words that a line may begin with to be tried: it changes the shell, and nothing on a disk."""

_STARTED = "perfsweep: Python starts"


def rehearse(site: SiteProfile, env: Mapping[str, str]) -> list[str]:
    """Warn of the first set-up line that fails here, or of an interpreter that does not start after them.

    Lines that do something else than change the shell, or speak of the job, are not tried, nor what follows.
    """
    tried = _harmless(site.setup)
    start = site.python if site.python and len(tried) == len(site.setup) else None
    if start and shutil.which(shlex.split(start)[0]) is None and not tried:
        return [
            f"cluster.python={start}: {shlex.split(start)[0]} is not on this machine; probe=true asks a node"
        ]
    if not tried and not start:
        return []
    script = batch.rehearsal(tried)
    if start:
        script += f"\n{start} -c 'print(\"{_STARTED}\")'\n"
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            env=dict(env),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"cluster.setup or cluster.python did not end within {TIMEOUT_S:g} s on this machine"]
    return _failures(start, done)


def _harmless(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        words = line.split()
        plain = not any(sign in line for sign in (";", "&", "|", ">", "`", "$(", "SLURM_"))
        if not words or words[0] not in _HARMLESS.split() or not plain:
            break
        kept.append(line)
    return kept


def _failures(start: str | None, done: subprocess.CompletedProcess[str]) -> list[str]:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if failed := [line for line in lines if line.startswith(SETUP_SIGN)]:
        said = [line for line in lines if line not in failed]
        why = f" ({said[-1]})" if said else ""
        return [f"on this machine {failed[0].removeprefix('perfsweep: ')}{why}; probe=true asks a node"]
    if start and _STARTED not in done.stdout:
        why = lines[-1] if lines else f"status {done.returncode}"
        return [f"cluster.python={start} does not start on this machine ({why}); probe=true asks a node"]
    return []
