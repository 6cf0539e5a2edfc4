"""A test bench on a real Slurm: jobs that do one thing, sweeps of the toy, and Slurm's word about both."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dev_slurm.cluster import DevCluster
from waiting import DEADLINE_S, until

from perfsweep.slurm.executor import SlurmExecutor
from perfsweep.slurm.jobs import ExecutorContext, Job, JobState
from perfsweep.slurm.site import SiteProfile
from perfsweep.slurm.states import End

ROOT = Path(__file__).parents[2]
CODE = ROOT / "slurm" / "none.zip"
"""An archive of code that no job here imports, next to the file that jobs start by."""

WAIT = "while [ ! -e go ]; do sleep 0.1; done"
"""A job that ends when the bench has a file ``go``."""

TOY = (
    *("workload=toys.spinner:Spinner", "name=toy", "axes.work=[single]", "tracking=disabled"),
    *("measure.rounds=6", "measure.iterations=6", "measure.warmup_max=5", "measure.evidence_iterations=2"),
    *("measure.counting_iterations=2", "measure.servers=1", "measure.timed_parity=false"),
)


@dataclass
class Bench:
    """One folder of jobs on one cluster."""

    cluster: DevCluster
    folder: Path
    said: list[str] = field(default_factory=list)

    def site(self, **changes: object) -> SiteProfile:
        """A profile that polls fast and trusts this host's file system."""
        quick: dict[str, object] = {
            "poll_min_s": 0.1,
            "poll_max_s": 0.3,
            "fs_delay_s": 0.6,
            "heartbeat_s": 0.5,
            "signal_delay_s": 5,
        }
        wanted = {
            "gpus": 0,
            "cpus_per_task": 1,
            "time_min": 5,
            "memory": "100M",
            "slurm_conf": str(self.cluster.settings.conf),
        }
        return SiteProfile(**{**quick, **wanted, **changes})  # type: ignore[arg-type]

    def executor(
        self, advanced: Callable[[str, End], bool] = lambda name, end: False, **changes: object
    ) -> SlurmExecutor:
        """A new executor on this folder, as another process would make one."""
        site = self.site(**changes)
        site.check()
        return SlurmExecutor.of(
            ExecutorContext(site, self.folder, "bench", CODE, advanced=advanced, say=self.said.append)
        )

    def job(self, name: str, shell: str, **env: str) -> Job:
        """A job of shell commands, which run in the bench's folder."""
        return Job(
            name,
            ("sh", "-c", f"cd {shlex.quote(str(self.folder))} || exit 9\n{shell}"),
            self.folder / "packs" / name / "log.txt",
            env,
        )

    def show(self, job: str) -> dict[str, str]:
        """Slurm's record of a job or array element."""
        line = self.cluster.client("scontrol", "show", "job", "-o", job).splitlines()[0]
        return dict(word.partition("=")[::2] for word in line.split() if "=" in word)

    def array(self, ex: SlurmExecutor, number: int = -1) -> str:
        """Slurm's number of a submission, the latest by default."""
        array = list(ex.journal.submissions.values())[number].array
        assert array
        return array

    def start_now(self, job: str) -> None:
        """Skip the two minutes a requeued job waits so that its old start is gone by then.

        A node refuses, in whole seconds, what was allowed to start no later than it ended the old start.
        """
        spool = self.cluster.settings.root / "spool"
        gone_since = float("inf")

        def started() -> bool:
            nonlocal gone_since
            facts = self.show(job)
            waits = facts["JobState"] == "PENDING" and facts["Reason"] == "BeginTime"
            if waits and not list(spool.glob(f"*/*_{facts['JobId']}.*")):
                gone_since = min(gone_since, time.time())
                if int(time.time()) > int(gone_since) + 1:
                    self.cluster.client(
                        "scontrol", "update", f"JobId={facts['JobId']}", "StartTime=now", check=False
                    )
            return facts["JobState"] not in ("PENDING", "COMPLETING", "REQUEUED")

        until(started, f"the restart of {job}")

    def text(self, name: str) -> str:
        """A file that jobs of this bench write."""
        file = self.folder / name
        return file.read_text() if file.exists() else ""

    def perfsweep(
        self, *arguments: str, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, by default in the bench's folder."""
        return subprocess.run(
            command(*arguments),
            env=self.env(env),
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            command(*arguments),
            env=self.env(env),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def env(self, more: dict[str, str]) -> dict[str, str]:
        """Environment of commands: clients find this cluster, and the tests' workloads are importable.

        Commands are those of this tree, whichever one is installed.
        """
        paths = f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests' / 'support'}"
        return {**self.cluster.env, "PYTHONPATH": paths, "COLUMNS": "200", **more}

    def sweep(self, *overrides: str) -> tuple[str, ...]:
        """Arguments of a sweep of the toy on this cluster."""
        conf = f"cluster.slurm_conf={self.cluster.settings.conf}"
        quick = (
            "cluster.poll_min_s=0.2",
            "cluster.poll_max_s=0.5",
            "cluster.fs_delay_s=1",
            "cluster.heartbeat_s=1",
            "cluster.sbatch=[]",
            "measure.repeats=0",  # a disturbed round that is measured again is a second attempt too
        )
        return (
            "sweep",
            *TOY,
            "cluster=dev",
            conf,
            *quick,
            "cluster.cpus_per_task=1",
            "cluster.signal_delay_s=5",
            *overrides,
        )

    def records(self) -> list[str]:
        """Trial folders of timing trials with a record."""
        return sorted(path.parent.name for path in self.folder.glob("runs/toy/trials/*/*-r*/record.json"))


def command(*arguments: str) -> list[str]:
    """The console script, as a module of this interpreter."""
    return [sys.executable, "-m", "perfsweep", *arguments]


def over(ex: SlurmExecutor, deadline_s: float = DEADLINE_S) -> dict[str, JobState]:
    """Poll until all jobs are over."""
    until(lambda: all(state.over for state in ex.poll().values()), f"the end of {ex.notes()}", deadline_s)
    return ex.poll()


def running(ex: SlurmExecutor, *names: str) -> None:
    """Poll until these jobs run."""
    until(
        lambda: all(ex.poll()[name] is JobState.RUNNING for name in names),
        f"the start of {names}: {ex.notes()}",
    )


def alive(pid: int) -> bool:
    """Whether a process runs and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(ex: SlurmExecutor, name: str) -> list[End]:
    """How all tries of a job ended."""
    return [s.ended[i] for s in ex.journal.submissions.values() for i in s.ended if s.names[i] == name]
