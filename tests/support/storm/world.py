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

from bench import command
from dev_slurm.cluster import DevCluster
from loopback import Loopback
from loopback.server import KEY

from storm import traces
from storm.processes import Process, Role, running

ROOT = Path(__file__).parents[3]
SUPPORT = ROOT / "tests" / "support"
DISK_MIB = 256
"""Size of the disk for sweeps: small, so that it can be filled."""

_CAPBSET_DROP, _DAC_OVERRIDE, _DAC_READ_SEARCH = 24, 1, 2


@dataclass
class World:
    """Everything that faults may touch, and nothing else.

    Attributes
    ----------
    root : folder of it all: runs/ (the small disk), home/, tmp/, clock/, bin/ (stand-ins for Slurm's clients)
        and outputs/
    mark : what each process of it carries in its environment
    token : a secret of the submitter's environment, which must stand in no file
    small_disk : whether runs/ is a disk of its own
    """

    root: Path
    mark: str
    token: str
    backend: Loopback
    small_disk: bool
    cluster: DevCluster | None = None
    sweep: str = ""
    held: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> Path:
        """The disk that sweeps are written to."""
        return self.root / "runs"

    @property
    def folder(self) -> Path:
        """The sweep that runs now."""
        return self.runs / self.sweep

    @property
    def programs(self) -> Path:
        """Stand-ins for Slurm's clients, first on the PATH of commands."""
        return self.root / "bin"

    @property
    def offset(self) -> Path:
        """How far the clock of the processes is off, in seconds."""
        return self.root / "clock" / "offset"

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must stand in no file: the submitter's token and the key of the W&B account."""
        return self.token, KEY

    def env(self) -> dict[str, str]:
        """Environment of commands."""
        ours = ("WANDB_", "SLURM_", "SBATCH_", "SQUEUE_", "PERFSWEEP_")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(ours) and not name.lower().endswith("_proxy")
        }
        paths = (self.root / "clock", ROOT / "src", SUPPORT)
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
            "STORM_TOKEN": self.token,
        }

    def start(self, arguments: tuple[str, ...], output: Path) -> subprocess.Popen[bytes]:
        """Start a command whose two streams go into files beside one another."""
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

    def processes(self, role: Role) -> list[Process]:
        """Running processes of a role, oldest first."""
        return running(self.mark)[role]

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
        mark = f"storm-{secrets.token_hex(8)}"
        place = World(root, mark, secrets.token_hex(16), backend, small, cluster)
        login = root / "home" / ".netrc"
        login.write_text(f"machine 127.0.0.1:{backend.port} login user password {KEY}\n")
        login.chmod(0o600)
        respect_permissions()
        try:
            yield place
        finally:
            for pid in traces.processes(mark, root):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if place.held:
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
