"""The batch script of a job array, and handing it to sbatch: submitit's Slurm executor without its pickles.

submitit knows sbatch's flags and writes the script. Its waiting is not used: it trusts sacct and a result
pickle alone, and hangs where a job is cancelled, killed or requeued. Nor is its call of sbatch, which drops
what a site says of a job that it takes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import submitit

from perfsweep.slurm.client import SlurmClient
from perfsweep.slurm.element import REQUEUE_ME
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.job_outcome import SETUP_SIGN
from perfsweep.slurm.local import NO_GPU
from perfsweep.slurm.site import CONTROL, Shape, SiteProfile, exported, sbatch_option

SETUP_FAILED = 78
"""Exit status of a batch script of which a set-up line failed (EX_CONFIG)."""

SBATCH_TIMEOUT_S = 60
"""sbatch itself waits and tries again while a controller is busy; after this long its fate is unknown."""

_TYPED_BY_SUBMITIT = frozenset(
    ("partition", "qos", "account", "constraint", "exclude", "nodelist", "gres", "mem", "exclusive", "time")
)


@dataclass(frozen=True)
class Submitted:
    """The number of an array, the cluster where sbatch names one, and every line that it said beyond that."""

    array: str
    cluster: str | None = None
    said: tuple[str, ...] = ()


class SubmissionFailed(ClusterError):
    """sbatch did not return a job's number; `unknown`: it may have submitted the job all the same.

    `words` are Slurm's own, by which it is decided what follows; `said` is every line of sbatch.
    """

    def __init__(
        self, message: str, unknown: bool = False, words: Sequence[str] = (), said: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.unknown, self.words, self.said = unknown, "\n".join(words), tuple(said)

    @property
    def site(self) -> str:
        """What the site said beyond Slurm's own words, as lines below a sentence; empty without any."""
        return sites_words(self.said, self.words.split("\n"))


class ArrayExecutor(submitit.SlurmExecutor):
    """Submits one command as an array of `count` elements."""

    def __init__(self, folder: Path, client: SlurmClient, site: SiteProfile) -> None:
        super().__init__(folder)
        self._client = client
        self._site = site

    @classmethod
    def affinity(cls) -> int:
        """Above zero: scripts can be shown where no Slurm is installed."""
        return 2

    def submit_text_array(self, command: str, count: int, parameters: dict[str, Any]) -> Submitted:
        """Hand an array over.

        Raises
        ------
        SubmissionFailed
            It has no number; the message is Slurm's.
        """
        if shutil.which("sbatch") is None:
            raise ClusterError("sbatch is not on the PATH: no Slurm is installed here; choose cluster=local")
        self.folder.mkdir(parents=True, exist_ok=True)
        script = self.folder / f".submission_file_{uuid.uuid4().hex}.sh"
        script.write_text(self.text(command, count, parameters))
        done = subprocess.run(
            self._make_submission_command(script),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        said = tuple(line for line in map(_printable, done.stderr.splitlines()) if line)
        # The last of several: sites print banners, which may speak of jobs. A wrapper may fail afterwards.
        if numbers := _NUMBER.findall(done.stdout):
            array, cluster = numbers[-1]
            script.rename(self.folder / f"{array}_submission_file.sh")
            return Submitted(array, cluster or None, said)
        words = slurms_words(said)
        if done.returncode:
            message = ": ".join(words) or next(map(_bare, reversed(said)), "")
            message = message or f"sbatch ended with status {done.returncode}"
            raise SubmissionFailed(message, done.returncode == 124, words, said)
        raise SubmissionFailed(
            f"sbatch's answer holds no job number: {_last_line(done.stdout)}", True, words, said
        )

    def text(self, command: str, count: int, parameters: dict[str, Any]) -> str:
        """The batch script that `submit_text_array` would submit."""
        self.parameters = {}
        self.update_parameters(**parameters)
        self.parameters["map_count"] = count
        return self._make_submission_file_text(command, "")

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        # A list in --export would have each node start a login shell for the rest of the environment, slow
        # or failing where home folders are. So sbatch itself is given no more than the jobs inherit.
        kept = {*exported(self._site, self._client.env)} - {"WANDB_RUN_ID"}
        unset = [word for name in os.environ if name not in kept for word in ("-u", name)]
        conf = [f"SLURM_CONF={self._client.conf}"] if self._client.conf else []
        return ["timeout", str(SBATCH_TIMEOUT_S), "env", *unset, *conf, "sbatch", str(submission_file_path)]


def parameters(
    site: SiteProfile, shape: Shape, name: str, comment: str, environ: Mapping[str, str], env_file: Path
) -> dict[str, Any]:
    """What `ArrayExecutor` is told, from a site profile and the environment that sbatch runs in.

    `env_file` will hold what `environment` says; Slurm writes its output next to it.

    Raises
    ------
    ClusterError
        Slurm can write no output into that folder.
    """
    options = site.options(shape)
    typed = {key: value for key, value in options.items() if key in _TYPED_BY_SUBMITIT}
    typed |= {"nodes": shape.nodes, "ntasks_per_node": 1, "cpus_per_task": options.pop("cpus-per-task", None)}
    further = {
        k: v
        for k, v in options.items()
        if k not in _TYPED_BY_SUBMITIT | {"nodes", "ntasks-per-node", "wckey"}
    }
    further |= {"export": "ALL", "output": output_pattern(env_file.parent)}
    further["propagate"] = "NONE"  # limits of a login node, on memory above all, are none of a job's
    further["signal"] = f"{'' if site.srun else 'B:'}USR2@{site.signal_delay_s}"
    further["requeue" if site.requeue else "no-requeue"] = True
    if site.kill_invalid_dep:
        further["kill-on-invalid-dep"] = "yes"
    further |= dict(map(sbatch_option, site.sbatch))
    return {
        **typed,
        "job_name": name,
        "comment": comment,
        "wckey": site.wckey,
        "array_parallelism": site.array_parallelism,
        "stderr_to_stdout": True,
        "setup": _setup(site, shape, environ, env_file),
        "teardown": _teardown(site) or None,
        "additional_parameters": further,
        "use_srun": False,  # `command` names it: submitit reads %j in a folder's name as Slurm does
    }


def output_pattern(folder: Path) -> str:
    """Where Slurm writes what an element prints. In the folder's own name each % is doubled.

    Raises
    ------
    ClusterError
        Its name ends a line of the batch script, or has Slurm fill in nothing.
    """
    if "\\" in str(folder) or CONTROL.search(str(folder)):
        raise ClusterError(
            f"runs={str(folder.parent)!r}: Slurm writes nothing into a folder with a backslash or a control"
            " character in its path. Choose another with runs=FOLDER and name=NAME."
        )
    return str(folder).replace("%", "%%") + "/%A_%a_0_log.out"


def _srun(site: SiteProfile, shape: Shape, folder: Path) -> list[str]:
    """Of several nodes the first one runs the pack, which starts what the others do."""
    first = ["--nodes=1", "--ntasks=1", "--relative=0"] if shape.nodes > 1 else []
    output = f"--output={output_pattern(folder)}"
    return ["srun", "--unbuffered", output, "--export=ALL", *first, *site.srun_args]


def command(site: SiteProfile, shape: Shape, interpreter: str, element: Path, jobs_file: Path) -> str:
    """The last line of the batch script; without srun the shell becomes the job, so warnings reach it."""
    run = shlex.join(["-P", str(element), str(jobs_file)])
    start = site.python or shlex.quote(interpreter)
    if not shape.gpus:
        start = f"{shlex.join(NO_GPU)} {start}"
    if site.srun:
        start = f"{shlex.join(_srun(site, shape, jobs_file.parent))} {start}"
    elif not site.teardown:
        start = f"exec {start}"
    return f"{start} {run}"


_NUMBER = re.compile(r"^Submitted batch job (\d+)(?: on cluster (\S+))?$", re.MULTILINE)
_FAILED = ("Batch job submission failed: ", "allocation failure: ")
"""How the sentence begins that sbatch ends with; the second where it is only asked (--test-only)."""


def slurms_words(said: Sequence[str]) -> list[str]:
    """Pick the lines of sbatch that Slurm itself decided by: plug-ins and wrappers of a site print others.

    These are the reason of a limit, which is one word by itself, and the sentence that sbatch ends with.
    Without such a sentence it never asked the controller, and complains of its options.
    """
    own = [_bare(line) for line in said if line.startswith(("sbatch: ", *_FAILED))]
    failed = [line for line in own if line.startswith(_FAILED)]
    return [*(line for line in own if re.fullmatch(r"[A-Z]\w+", line)), failed[-1]] if failed else own


def sites_words(said: Sequence[str], words: Sequence[str]) -> str:
    """Put all lines of sbatch but Slurm's own `words` below one another; empty where there are none."""
    lines = [line for line in map(_bare, said) if line not in words]
    return "\n  ".join(["\nthe site says:", *lines]) if lines else ""


def _bare(line: str) -> str:
    return line.removeprefix("sbatch: ").removeprefix("error: ").strip()


def _printable(line: str) -> str:
    """A line that acts on no terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _setup(site: SiteProfile, shape: Shape, environ: Mapping[str, str], env_file: Path) -> list[str]:
    lines = [
        f"# sbatch is started with these variables alone: {' '.join(exported(site, environ))}",
        "unset SLURM_EXPORT_ENV  # srun would drop what the lines below set",
        "unset SLURM_CPUS_PER_GPU  # srun refuses that with the next line",
        f"export SRUN_CPUS_PER_TASK={shape.cpus}  # srun does not take it from sbatch since Slurm 22.05",
    ]
    if site.env_set:
        lines.append(f". {shlex.quote(str(env_file))}  # cluster.env_set")
    must = [(f"line {number}", text) for number, text in enumerate(site.setup, 1)]
    if site.scratch:
        own = f'export PERFSWEEP_SCRATCH="{site.scratch}/perfsweep-$SLURM_JOB_ID"'
        own += ' && mkdir -p -- "$PERFSWEEP_SCRATCH" && export TMPDIR="$PERFSWEEP_SCRATCH"'
        must.append(("for cluster.scratch", own))
    if not must:
        return lines
    return [*lines, _STOP, *(line for what, text in must for line in _checked(what, text))]


def rehearsal(setup: Sequence[str]) -> str:
    """A script of set-up lines alone, each checked as in a batch script."""
    lines = (line for number, text in enumerate(setup, 1) for line in _checked(f"line {number}", text))
    return "\n".join([_STOP, *lines])


def _teardown(site: SiteProfile) -> list[str]:
    """Lines after the pack, which keep the job's status."""
    lines = list(site.teardown)
    if site.scratch and site.srun:
        lines.append('rm -rf -- "$PERFSWEEP_SCRATCH"')
    if site.python and site.requeue and site.srun:
        asked = f"[ $perfsweep_status -eq {REQUEUE_ME} ]"
        lines.append(f'{asked} && scontrol requeue "$SLURM_JOB_ID"  # a container may not have scontrol')
    if lines == site.teardown:
        return lines
    return ["perfsweep_status=$?", *lines, "exit $perfsweep_status"]


_STOP = f"""perfsweep_check() {{
    local status=$?
    [ $status -eq 0 ] && return
    echo "{SETUP_SIGN} $1 ended with status $status: $2" >&2
    exit {SETUP_FAILED}
}}"""


def _checked(what: str, text: str) -> Iterator[str]:
    """A set-up line, and what ends the job where it fails: what it was to bring is missing then."""
    yield text
    yield f"perfsweep_check {shlex.quote(what)} {shlex.quote(' '.join(text.split()))}"


def environment(site: SiteProfile) -> str:
    """The text of the file that sets the variables of `env_set`: a batch script may be read by others."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in site.env_set.items())


def refusal(message: str) -> str | None:
    """The field of the site profile that sbatch objects to; None where asking again may help."""
    for sign, field in _OBJECTIONS.items():
        if sign.lower() in message.lower():
            return field
    return None


def no_such_nodes(message: str) -> bool:
    """Whether sbatch says that there are no such nodes, or not so many."""
    return any(sign in message for sign in _TOO_FEW)


def is_limit(message: str) -> bool:
    """Whether sbatch says that enough is queued or the controller is busy: asking later helps."""
    return any(sign in message for sign in _LATER)


def is_limit_of_others(message: str) -> bool:
    """Whether a limit counts jobs of other users too, so that their ends may lift it."""
    return any(sign in message for sign in ("Grp", "PerAccount", "temporarily un"))


_OBJECTIONS: dict[str, str] = {
    "invalid partition": "partition",
    "Invalid account": "account",
    "Invalid qos": "qos",
    "Invalid feature": "constraint",
    "reservation": "reservation",
    "Invalid node name": "nodelist or exclude",
    "Invalid generic resource": "gpus, gpu_type or gpu_flag",
    "Requested node configuration": "gpus, cpus_per_task, memory or constraint",
    "More processors requested than": "cpus_per_task",
    "Requested time limit": "time_min",
    "Memory specification": "memory",
    "wckey": "wckey",
    "Invalid license": "sbatch (--licenses)",
    "unrecognized option": "sbatch",
    "invalid option": "sbatch",
    "Job dependency problem": "sbatch (--dependency)",
    "not permitted to use": "partition, account or qos",
    "Access/permission denied": "partition, account or qos",
    "Invalid job array": "max_array",
}
"""What sbatch says, and which field of the profile it is about; the first that fits."""

_TOO_FEW = ("Requested node configuration", "Invalid node count", "Node count specification")

_LATER = (
    "QOSMaxSubmitJob",
    "AssocMaxSubmitJobLimit",
    "QOSGrpSubmitJob",
    "AssocGrpSubmitJobsLimit",
    "MaxSubmitJob",
    "Resource temporarily unavailable",
    "temporarily unable to accept job",
    "Job violates accounting/QOS policy",
)
