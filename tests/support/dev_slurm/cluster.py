"""One real Slurm on this host: munge, slurmctld and some slurmd, with all state in one folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev_slurm import accounting
from dev_slurm.daemons import alive, binary, daemonise, pid_in, processes_of_jobs, stop, until
from dev_slurm.settings import Settings, gres_conf, slurm_conf, slurmdbd_conf
from perfsweep.slurm.errors import ClusterError

FOLDERS = ("etc", "run", "log", "state", "spool", "dev")
CLIENT_TIMEOUT_S = 20.0


class DevCluster:
    """A development cluster; `up` and `down` may be called in any state of it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def env(self) -> dict[str, str]:
        """The environment for clients and daemons: ours, without what an allocation or make has set."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "PYTHONPATH"))
        }
        return {**kept, "SLURM_CONF": str(self.settings.conf)}

    def up(self) -> None:
        """Start whatever does not run yet.

        Raises
        ------
        ClusterError
            Something is not installed, a port is taken, or a daemon does not come up.
        """
        for name in ("munged", "slurmctld", "slurmd", "scontrol"):
            binary(name)
        self._write_files()
        self._start_munged()
        if self.settings.accounting:
            accounting.start(self.settings, self.env)
        self.start_controller()
        for name in self.settings.node_names:
            self.start_node(name)
        until(self.ready, f"the nodes of {self.settings.root} becoming idle", 30)

    def down(self) -> None:
        """Cancel everything and stop all daemons that the pid files name."""
        run = self.settings.root / "run"
        if pid_in(self.settings.pid_file("slurmctld")):
            self.client("scancel", "--me", "--full", check=False)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes_of_jobs(self.settings.conf):
                if alive(pid):
                    os.kill(pid, number)
        order = [
            *sorted(run.glob("slurmd-*.pid")),
            *(self.settings.pid_file(n) for n in ("slurmctld", "slurmdbd")),
        ]
        stop(pid for file in order if (pid := pid_in(file)))
        stop(pid for name in ("mariadbd", "munged") if (pid := pid_in(self.settings.pid_file(name))))
        for file in run.glob("*.pid"):
            file.unlink(missing_ok=True)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        if not pid_in(self.settings.pid_file("slurmctld")):
            self._refuse_taken_port()
            daemonise(
                [binary("slurmctld"), "-f", str(self.settings.conf)],
                self.env,
                self.settings.root / "log" / "slurmctld.out",
            )
        until(lambda: "UP" in self.client("scontrol", "ping", check=False), "an answer of slurmctld", 20)

    def start_node(self, name: str) -> None:
        """Start the slurmd of one node."""
        (self.settings.root / "spool" / name).mkdir(parents=True, exist_ok=True)
        if not pid_in(self.settings.pid_file(f"slurmd-{name}")):
            command = [binary("slurmd"), "-f", str(self.settings.conf), "-N", name]
            daemonise(command, self.env, self.settings.root / "log" / f"slurmd-{name}.out")

    def kill(self, daemon: str) -> None:
        """SIGKILL a daemon, such as ``slurmctld`` or ``slurmd-n1``, and wait until it is gone."""
        pid = pid_in(self.settings.pid_file(daemon))
        if pid is None:
            raise ClusterError(f"{daemon} of {self.settings.root} does not run")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid), f"the end of {daemon}", 5)

    def ready(self) -> bool:
        """Whether every node takes jobs."""
        states = dict(
            line.split() for line in self.client("sinfo", "-hN", "-o", "%N %T", check=False).splitlines()
        )
        return set(states) == set(self.settings.node_names) and all(
            state in ("idle", "mixed", "allocated") for state in states.values()
        )

    def client(self, *command: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Output of a Slurm client on this cluster.

        Raises
        ------
        ClusterError
            It failed (with `check`) or did not answer in time.
        """
        try:
            done = subprocess.run(
                [binary(command[0]), *command[1:]],
                env={**self.env, **(env or {})},
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=CLIENT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{' '.join(command)} did not answer within {CLIENT_TIMEOUT_S:g} s") from error
        if check and done.returncode:
            raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip()}")
        return done.stdout

    def _write_files(self) -> None:
        for name in FOLDERS:
            (self.settings.root / name).mkdir(parents=True, exist_ok=True)
        self._make_devices()
        etc = self.settings.root / "etc"
        self.settings.conf.write_text(slurm_conf(self.settings))
        (etc / "gres.conf").write_text(gres_conf(self.settings) if self.settings.gpus else "")
        if self.settings.accounting:
            file = etc / "slurmdbd.conf"
            file.touch(mode=0o600)
            file.write_text(slurmdbd_conf(self.settings))
        key = etc / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))

    def _make_devices(self) -> None:
        """As root, device files of our own stand for GPUs: copies of /dev/null."""
        for number in range(self.settings.gpus):
            file = self.settings.root / "dev" / f"gpu{number}"
            if os.getuid() == 0 and not file.exists():
                try:
                    os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
                except PermissionError:
                    return  # a container without that right: loop devices will do

    def _start_munged(self) -> None:
        if pid_in(self.settings.pid_file("munged")):
            return
        run, log = self.settings.root / "run", self.settings.root / "log"
        command = [
            *(binary("munged"), "--force", "--num-threads=2"),
            f"--key-file={self.settings.root}/etc/munge.key",
            f"--socket={self.settings.munge_socket}",
            f"--pid-file={self.settings.pid_file('munged')}",
            f"--log-file={log}/munged.log",
            f"--seed-file={run}/munge.seed",
        ]
        daemonise(command, self.env, log / "munged.out")
        until(self.settings.munge_socket.exists, "munge's socket", 10)

    def _refuse_taken_port(self) -> None:
        for port in (
            self.settings.port,
            *(self.settings.port + 10 + i for i in range(1, self.settings.nodes + 1)),
        ):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError as error:
                    if not self._own(port):
                        raise ClusterError(
                            f"port {port} is taken by another program; start the cluster with another port="
                        ) from error

    def _own(self, port: int) -> bool:
        """Whether a slurmd of ours that already runs holds the port."""
        number = port - self.settings.port - 10
        return number >= 1 and pid_in(self.settings.pid_file(f"slurmd-n{number}")) is not None


def remove(cluster: DevCluster) -> None:
    """Stop a cluster and delete its folder."""
    cluster.down()
    shutil.rmtree(cluster.settings.root, ignore_errors=True)


def free_port() -> int:
    """A base port whose neighbours, which a cluster of a few nodes uses, are free too."""
    for _ in range(100):
        base = 20000 + secrets.randbelow(30000)
        if all(map(_is_free, (base, *range(base + 9, base + 15)))):
            return base
    raise ClusterError("no free ports for a cluster were found in a hundred tries")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def installed() -> str | None:
    """None where a cluster can be started, else what is missing."""
    try:
        for name in ("munged", "slurmctld", "slurmd", "sbatch"):
            binary(name)
    except ClusterError as error:
        return str(error)
    return None


def settings_in(root: Path) -> Settings:
    """Enough of a cluster's settings to stop it or talk to it, read from its folder.

    Raises
    ------
    ClusterError
        There is no cluster in the folder.
    """
    conf = root / "etc" / "slurm.conf"
    try:
        lines = conf.read_text().splitlines()
    except OSError as error:
        raise ClusterError(f"there is no cluster in {root}; start one with `make slurm-up`") from error
    values = {name: value for name, equals, value in (line.partition("=") for line in lines) if equals}
    nodes = sum(line.startswith("NodeName=") for line in lines)
    return Settings(
        root=root,
        port=int(values["SlurmctldPort"]),
        nodes=nodes,
        accounting="slurmdbd" in values["AccountingStorageType"],
    )
