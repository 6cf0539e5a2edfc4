"""The place that a storm rages in: folders, a small disk, a home, a W&B server, and perhaps a Slurm."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from bench import command
from dev_slurm.cluster import DevCluster
from loopback import Loopback
from loopback.server import KEY

from storm import invariants, processes

ROOT = Path(__file__).parents[3]
DISK_MIB = 256
"""Size of the disk for sweeps: small, so that it can be filled."""

SMALL = (
    *("workload=toys.spinner:Spinner", "workload.products=200", "measure.rounds=8", "measure.iterations=60"),
    *("measure.warmup_max=10", "measure.evidence_iterations=2", "measure.counting_iterations=2"),
    *("measure.timed_parity=false", "measure.timeout_s=90", "measure.repeats=0", "cluster.arms_per_pack=3"),
    *("tracking=online", "tracking.entity=team", "tracking.share=1.0", "tracking.patience_s=10"),
    *("tracking.uploads=2", "retry=[failed,oom,timeout]"),  # a trial that was killed is wanted all the same
)
QUICK = (
    *("cluster.poll_min_s=0.2", "cluster.poll_max_s=0.5", "cluster.fs_delay_s=1", "cluster.heartbeat_s=1"),
    *("cluster.signal_delay_s=5", "cluster.cpus_per_task=1", "cluster.memory=3G", "cluster.sbatch=[]"),
    *("cluster.time_min=10", "cluster.max_retries=5"),
)
"""A development cluster asked as often as tests need it; two generations of a small sweep take 1.6 GB."""

_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2


@dataclass
class World:
    """Everything that faults may touch, and nothing else.

    Attributes
    ----------
    root : folder of it all: runs/ (the small disk), home/, tmp/, clock/, bin/ (stand-ins for Slurm's clients)
        and outputs/
    mark : what each process of it carries in its environment
    secrets : what must be in no file: a token of the submitter's environment, the key of the W&B account
    small_disk : whether runs/ is a disk of its own
    sweep : name of the one that runs now
    kept : what was found in it, for which it is not removed
    """

    root: Path
    mark: str
    secrets: tuple[str, str]
    backend: Loopback
    small_disk: bool
    cluster: DevCluster | None = None
    sweep: str = ""
    kept: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs, self.outputs, self.programs = (self.root / name for name in ("runs", "outputs", "bin"))
        self.offset = self.root / "clock" / "offset"  # how far the clock of its processes is off, in seconds
        self.login = self.root / "home" / ".netrc"

    @property
    def folder(self) -> Path:
        """The sweep that runs now."""
        return self.runs / self.sweep

    @property
    def slurm(self) -> DevCluster:
        """Its cluster, where there is one."""
        assert self.cluster
        return self.cluster

    def env(self) -> dict[str, str]:
        """Environment of commands."""
        ours = ("WANDB_", "SLURM_", "SBATCH_", "SQUEUE_", "PERFSWEEP_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ours) and not name.lower().endswith("_proxy")
        }
        paths = (self.root / "clock", ROOT / "src", ROOT / "tests" / "support")
        return {
            **kept,
            **({"SLURM_CONF": str(self.cluster.settings.conf)} if self.cluster else {}),
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            "WANDB_BASE_URL": self.backend.url,
            "PERFSWEEP_STORM": self.mark,
            "STORM_TOKEN": self.secrets[0],
        }

    def start(self, arguments: tuple[str, ...], output: Path) -> subprocess.Popen[bytes]:
        """Start a command whose streams go into two files, the second of which ends in ``.err``."""
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as errors:
            return subprocess.Popen(
                command(*arguments),
                env=self.env(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )

    def processes(self, role: processes.Role) -> list[psutil.Process]:
        """Running processes of a role, oldest first."""
        return processes.running(self.mark, role)

    def arguments(self, *overrides: str) -> tuple[str, ...]:
        """The command of a sweep of some tenths of a second a trial, in two packs."""
        place: tuple[str, ...] = ("cluster=local", "cluster.slots=2")
        if self.cluster:
            conf = f"cluster.slurm_conf={self.cluster.settings.conf}"
            account = ("cluster.account=bench",) if self.cluster.settings.accounting else ()
            place = ("cluster=dev", conf, *QUICK, *account, "cluster.env_allow=[PERFSWEEP_STORM]")
        return ("sweep", *place, *SMALL, f"name={self.sweep}", f"runs={self.runs}", *overrides)

    def published(self) -> list[tuple[str, list[str]]]:
        """The runs of the sweep in W&B: configuration and history of each."""
        with self.backend.lock:
            runs = [run for run in self.backend.store.runs.values() if run.job_type == "bench"]
            return [(run.config, list(run.history)) for run in runs if run.group == self.sweep]

    def sent(self) -> Iterator[tuple[str, bytes]]:
        """All that W&B was told, by where it lies there."""
        with self.backend.lock:
            for run in self.backend.store.runs.values():
                texts = (run.config, run.summary, *run.history, *run.events)
                yield run.name, "\n".join(texts).encode()
                yield from ((f"{run.name}/{name}", content) for name, content in run.files.items())
            for artifact in self.backend.store.artifacts.values():
                yield from ((f"{artifact.collection}/{name}", data) for name, data in artifact.files.items())

    def traces(self, *allowed: Path) -> Iterator[invariants.Violation]:
        """What a finished sweep must not leave in its folder, say in its logs, or hold, but in `allowed`."""
        yield from invariants.leftovers(self.folder)
        yield from invariants.secrets(self.secrets, self.root, (self.login, *allowed))
        for file in sorted([*self.folder.glob("packs/*/log.txt"), *self.folder.glob("submissions/*.out")]):
            yield from invariants.words(file.read_text(errors="replace"), str(file))
        for file in sorted(self.folder.glob("trials/*/*/log.txt")):
            yield from invariants.trial_words(file.read_text(errors="replace"), "toys", str(file))


@contextmanager
def world(cluster: DevCluster | None = None) -> Iterator[World]:
    """Make the place, and remove it; it stays where something was found in it."""
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp"))
        for name in ("runs", "home", "tmp", "clock", "bin", "outputs"):
            (root / name).mkdir()
        shutil.copy(Path(__file__).with_name("clock") / "sitecustomize.py", root / "clock")
        small = _mounted(root / "runs")
        if small:
            stack.callback(_unmounted, root / "runs")
        backend = stack.enter_context(Loopback())
        planted = secrets.token_hex(16), KEY
        place = World(root, f"storm-{secrets.token_hex(8)}", planted, backend, small, cluster)
        place.login.touch(mode=0o600)
        place.login.write_text(f"machine 127.0.0.1:{backend.port} login user password {KEY}\n")
        respect_permissions()
        try:
            yield place
        finally:
            for pid in invariants.processes(place.mark, root):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if place.kept:
                small and stack.pop_all()  # what is on the disk stays too
                print(f"kept for a look: {root}", file=sys.stderr)
            else:
                stack.close()
                shutil.rmtree(root, ignore_errors=True)


def respect_permissions() -> None:
    """Have what starts from here keep to the permissions of files, as other users than root do."""
    for right in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        ctypes.CDLL(None, use_errno=True).prctl(_CAPBSET_DROP, right, 0, 0, 0)


def _mounted(place: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "storm", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False  # no such program: then the disk cannot be filled


def _unmounted(place: Path) -> None:
    subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)
