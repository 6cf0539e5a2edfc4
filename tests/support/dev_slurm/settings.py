"""Knobs of a development cluster and the files they become. Pure: nothing is started or written here."""

from __future__ import annotations

import getpass
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from perfsweep.slurm.errors import ClusterError

SOCKET_PATH_LIMIT = 107
"""Longest path of a Unix socket on Linux, without its final zero."""

MIN_PORT, MAX_PORT = 1024, 65000


@dataclass(frozen=True)
class Settings:
    """One development cluster. Clusters with other roots and ports run side by side.

    Parameters
    ----------
    root : the one folder that holds everything: etc run log state spool dev mysql
    port : of slurmctld; slurmd of node i listens on ``port + 10 + i``, slurmdbd on ``port + 9``
    nodes, cpus, gpus, memory_mb : how many nodes of this host are pretended, and what each has
    gpu_type : what the cluster calls its GPUs; None: nothing
    accounting : slurmdbd on a MariaDB of its own; without it `sacct` refuses
    max_array : MaxArraySize; the highest index of an array is one less
    min_job_age_s : how long an ended job stays visible
    kill_wait_s, grace_s : seconds from SIGTERM to SIGKILL, and from the notice of preemption to SIGTERM
    slurmd_timeout_s : how long a silent node counts as alive
    name : what Slurm calls the cluster
    extra : lines for slurm.conf, last
    """

    root: Path
    port: int = 17817
    nodes: int = 2
    cpus: int = 4
    gpus: int = 2
    gpu_type: str | None = None
    memory_mb: int = 8000
    accounting: bool = False
    max_array: int = 1001
    min_job_age_s: int = 30
    kill_wait_s: int = 5
    grace_s: int = 0
    slurmd_timeout_s: int = 10
    proctrack: str = "linuxproc"
    name: str = "dev"
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ClusterError for a root too deep for a socket and a port out of range."""
        if len(str(self.munge_socket)) > SOCKET_PATH_LIMIT:
            raise ClusterError(
                f"root={self.root} is too deep: the path of munge's socket would pass {SOCKET_PATH_LIMIT}"
                " characters"
            )
        if not MIN_PORT <= self.port <= MAX_PORT:
            raise ClusterError(f"port={self.port} must lie between {MIN_PORT} and {MAX_PORT}")

    @property
    def conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.root / "etc" / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Where our own munged listens."""
        return self.root / "run" / "munge.socket"

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, all of them this host."""
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    def pid_file(self, daemon: str) -> Path:
        """Where a daemon writes its process id."""
        return self.root / "run" / f"{daemon}.pid"


def default_root() -> Path:
    """Where `make slurm-up` puts its cluster, and `conf/cluster/dev.yaml` looks for it."""
    user = os.environ.get("USER", "user")
    return Path(os.environ.get("PERFSWEEP_SLURM_ROOT", f"/tmp/perfsweep-slurm-{user}"))


def slurm_conf(settings: Settings) -> str:
    """The text of slurm.conf; whatever is not named here stays at Slurm's default."""
    root, host, user = settings.root, _host(), getpass.getuser()
    lines = [
        f"ClusterName={settings.name}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={settings.munge_socket}",
        f"SlurmctldPort={settings.port}",
        f"SlurmctldPidFile={settings.pid_file('slurmctld')}",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"StateSaveLocation={root}/state",
        f"SlurmdPidFile={root}/run/slurmd-%n.pid",
        f"SlurmdLogFile={root}/log/slurmd-%n.log",
        f"SlurmdSpoolDir={root}/spool/%n",
        # else a node that declares more cores than the host has is invalid
        "SlurmdParameters=config_overrides",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=500",  # else a job without --mem takes all memory of its node
        # cgroup needs root; pgid holds a node 3 s longer where zombies are reaped late
        f"ProctrackType=proctrack/{settings.proctrack}",
        "TaskPlugin=task/none",
        "SwitchType=switch/none",
        "MpiDefault=none",
        "JobAcctGatherType=jobacct_gather/linux",
        "JobAcctGatherFrequency=1",
        "JobAcctGatherParams=OverMemoryKill",
        "SchedulerParameters=sched_interval=5,bf_interval=5,sched_min_interval=100000,batch_sched_delay=0",
        f"MinJobAge={settings.min_job_age_s}",
        f"KillWait={settings.kill_wait_s}",
        f"SlurmdTimeout={settings.slurmd_timeout_s}",
        "SlurmctldTimeout=10",
        "ReturnToService=2",
        f"MaxArraySize={settings.max_array}",
        "GresTypes=gpu",
        "Licenses=host:1",  # whoever measures on this host asks for it: packs run one after the other
        "JobRequeue=1",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *_accounting(settings),
        *_nodes(settings, host),
        "PartitionName=gpu Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=UNLIMITED",
        (
            "PartitionName=preemptible Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE"
            f" GraceTime={settings.grace_s}"
        ),
        *settings.extra,
    ]
    return "\n".join(lines) + "\n"


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def gres_conf(settings: Settings) -> str:
    """The text of gres.conf: which device files stand for GPUs, the same on every node."""
    names = f"n[1-{settings.nodes}]"
    kind = f" Type={settings.gpu_type}" if settings.gpu_type else ""
    return "".join(f"NodeName={names} Name=gpu{kind} File={device}\n" for device in gpu_devices(settings))


def gpu_devices(settings: Settings) -> list[Path]:
    """Device files that stand for GPUs: NVIDIA's, our own, or loop devices, which nobody opens.

    Slurm refuses regular files, and a job would then never be told which GPU is its own.

    Raises
    ------
    ClusterError
        This host has no device that could stand for a GPU.
    """
    for folder, stem in (
        (Path("/dev"), "nvidia"),
        (settings.root / "dev", "gpu"),
        (Path("/dev"), "loop"),
        (Path("/dev"), "tty"),
    ):
        devices = [folder / f"{stem}{number}" for number in range(settings.gpus)]
        if all(map(_is_device, devices)):
            return devices
    raise ClusterError(
        f"no {settings.gpus} device files to stand for GPUs on this host; start the cluster with gpus=0"
    )


def _is_device(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def _nodes(settings: Settings, host: str) -> list[str]:
    shape = (
        f"CPUs={settings.cpus} Sockets=1 CoresPerSocket={settings.cpus} ThreadsPerCore=1"
        f" RealMemory={settings.memory_mb}"
    )
    kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
    gres = f" Gres=gpu:{kind}{settings.gpus}" if settings.gpus else ""
    place = f"NodeHostname={host} NodeAddr=127.0.0.1"
    return [
        f"NodeName={name} {place} Port={settings.port + 10 + number} {shape}{gres} Feature=fake,f{number}"
        for number, name in enumerate(settings.node_names, 1)
    ]


def _accounting(settings: Settings) -> list[str]:
    if not settings.accounting:
        return ["AccountingStorageType=accounting_storage/none"]
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={settings.port + 9}",
        f"AccountingStoragePass={settings.munge_socket}",  # else clients look for the system's munge
        "AccountingStorageEnforce=associations,limits,qos",
    ]


def slurmdbd_conf(settings: Settings) -> str:
    """The text of slurmdbd.conf."""
    return "\n".join(
        [
            "AuthType=auth/munge",
            f"AuthInfo=socket={settings.munge_socket}",
            f"DbdHost={_host()}",
            "DbdAddr=127.0.0.1",
            f"DbdPort={settings.port + 9}",
            f"SlurmUser={getpass.getuser()}",
            f"PidFile={settings.pid_file('slurmdbd')}",
            f"LogFile={settings.root}/log/slurmdbd.log",
            "StorageType=accounting_storage/mysql",
            "StorageLoc=slurm",
            f"StorageUser={getpass.getuser()}",
            "",
        ]
    )
