"""Asking Slurm: each call has a time-out and a clean environment; "no answer" never means "no job"."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfsweep.slurm.errors import ClusterError

TIMEOUT_S = 20.0
"""A client gives up on an unreachable controller after about nine seconds by itself."""

_FIELDS = "%F|%K|%A|%T|%r|%N|%k|%j|%S"
_EVER = "1970-01-02"
"""Before any job, in every time zone. Left out, it is today's midnight for some versions of sacct."""

_SACCT_FIELDS = "JobID,JobIDRaw,State,ExitCode,NodeList,Comment,JobName"

_DOWN = re.compile(r"DOWN|FAIL|RESPOND|\*$")
"""What is in the state of a node that does not work; one that is only drained has failed no job."""

_START = re.compile(r"N/A|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

_INHERITED = ("SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SALLOC_", "SRUN_")


class Unreachable(ClusterError):
    """Slurm did not answer: nothing follows from that."""


class Refused(ClusterError):
    """A client answered with an error."""


class Forbidden(Refused):
    """A client is not for us: it cannot be started, or what it says is no word of Slurm's."""


@dataclass(frozen=True)
class Sighting:
    """What Slurm says about one array element; `index` None: about one that the answer does not name.

    `start` is when it has started or, as far as Slurm knows, will: ``2026-11-23T14:05:00``, or empty.
    """

    array: str
    index: int | None
    job_id: str
    state: str
    reason: str = ""
    node: str = ""
    comment: str = ""
    name: str = ""
    start: str = ""


class NoAccounting(ClusterError):
    """The site keeps no accounts, or not for us: sacct will never say anything."""


class SlurmClient:
    """The clients of one cluster. `calls` counts them; `forbidden` says which are not for us, and why."""

    def __init__(self, conf: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.conf = conf or os.environ.get("SLURM_CONF")
        self.timeout_s = timeout_s
        self.calls = 0
        self.forbidden: dict[str, str] = {}
        self._no_accounting: NoAccounting | None = None
        self._config: dict[str, str] | None = None

    @property
    def env(self) -> dict[str, str]:
        """Our environment without what an allocation or a user's defaults would add to a client's options.

        Inside a job also without the folder for temporary files, which may be that job's own.
        """
        inside = "SLURM_JOB_ID" in os.environ
        drop = (*_INHERITED, *(["TMPDIR"] if inside else []))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
        return {**kept, "LC_ALL": "C", **({"SLURM_CONF": self.conf} if self.conf else {})}

    def run(self, *command: str) -> str:
        """Output of a client.

        Raises
        ------
        Unreachable
            It did not answer in time, or could not reach the controller.
        Refused
            It answered with an error, which is the message.
        """
        if self.conf and not Path(self.conf).exists():  # clients would look for it elsewhere, for a long time
            raise Unreachable(
                f"SLURM_CONF={self.conf} does not exist; `make slurm-up` starts the development cluster"
            )
        self.calls += 1
        try:
            done = subprocess.run(
                command,
                env=self.env,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=self.timeout_s,
                check=False,
                start_new_session=True,  # Ctrl-C is for us
            )
        except subprocess.TimeoutExpired as error:
            raise Unreachable(f"{command[0]} did not answer within {self.timeout_s:g} s") from error
        except OSError as error:
            raise self._forbids(command[0], f"it cannot be started: {error.strerror}") from error
        if done.returncode:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            words = [line for line in said if _SLURMS.match(line)]
            if said and not words and not out_of_reach(done.stderr):
                raise self._forbids(command[0], " ".join(said))
            shown = said if command[0] == "sbatch" else words or said  # what a site adds there is for people
            message = "\n".join(shown) or f"{command[0]} ended with status {done.returncode}"
            raise (Unreachable if out_of_reach("\n".join(words or said)) else Refused)(message)
        return done.stdout

    def _forbids(self, program: str, why: str) -> Forbidden:
        self.forbidden[program] = f"{program} is not for you here ({why})"
        return Forbidden(self.forbidden[program])

    def hindered(self, effects: Mapping[str, str]) -> list[str]:
        """Say which of these programs are missing here or not for us, each with what follows from it."""
        said = []
        for program, effect in effects.items():
            try:
                self.run(program, "--version")
            except Forbidden as why:
                said.append(f"{why}: {effect}")
            except ClusterError:
                continue  # it answers, if only that its controller does not
        return said

    def silence(self) -> str:
        """Why jobs cannot be followed from here; empty where a controller answers."""
        try:
            if " is UP" in self.run("scontrol", "ping"):
                return ""
        except Forbidden:  # what a site forbids says nothing about its controller
            return self._silence_of_the_queue()
        except ClusterError:
            pass
        return "Slurm's controller does not answer"

    def _silence_of_the_queue(self) -> str:
        try:
            self.run("squeue", "--me", "-h", "-o", "%i")
        except Forbidden:
            return "; ".join(self.forbidden.values())
        except ClusterError:
            return "Slurm's controller does not answer"
        return ""

    def queue(self) -> list[Sighting]:
        """All jobs of this user that Slurm still knows, ended ones included, in one call.

        Raises
        ------
        ClusterError
            There was no usable answer: nothing follows.
        """
        try:
            return list(parse_queue(self.run("squeue", "--me", "-h", "-r", "-t", "all", "-o", _FIELDS)))
        except Forbidden as forbidden:
            with suppress(Forbidden):
                if found := self.shown():  # the same of all users; an empty answer proves nothing
                    return found
            raise forbidden

    def accounted(self, arrays: Sequence[str]) -> list[Sighting]:
        """What accounting says about arrays, whenever they ran: clocks of two machines may differ.

        Raises
        ------
        NoAccounting
            There is none.
        ClusterError
            There was no usable answer: nothing follows.
        """
        if self._no_accounting:
            raise self._no_accounting
        fixed = ("-X", "-P", "-n", "-D", "-S", _EVER, "-j", ",".join(arrays), "-o", _SACCT_FIELDS)
        try:
            return list(parse_accounting(self.run("sacct", *fixed)))
        except Refused as error:
            if not isinstance(error, Forbidden) and "accounting storage is disabled" not in str(error):
                raise
            self._no_accounting = NoAccounting(str(error))
            raise self._no_accounting from error

    def shown(self, array: str | None = None) -> list[Sighting]:
        """What the controller itself says about one array, or about all jobs; empty: it knows none of it.

        Raises
        ------
        ClusterError
            There was no usable answer: nothing follows.
        """
        try:
            return list(parse_jobs(self.run("scontrol", "show", "job", "-o", *([array] if array else []))))
        except Refused as error:
            if "Invalid job id" in str(error):
                return []
            raise

    def hostnames(self, nodes: str) -> list[str]:
        """Names of the nodes that a text such as ``n[1-2]`` means.

        Raises
        ------
        ClusterError
            There was no usable answer.
        """
        rows = self.run("scontrol", "show", "hostnames", nodes).splitlines()
        return [row.strip() for row in rows if len(row.split()) == 1]  # a banner is longer

    def out_of_service(self, job_id: str, nodes: str) -> list[str]:
        """Of a job's nodes the one whose failure ended it, where Slurm says so, else the nodes that are down.

        Raises
        ------
        ClusterError
            There was no usable answer.
        """
        try:
            job = self.run("scontrol", "show", "job", "-o", job_id)
        except Refused:
            job = ""  # forgotten, and known from accounting
        if named := re.search(r"\bFailedNode=(\S+)", job):  # Slurm 22.05 does not say
            return self.hostnames(named[1])
        rows = self.run("scontrol", "show", "node", "-o", nodes)
        states = re.findall(r"^NodeName=(\S+).*?\bState=(\S+)", rows, re.MULTILINE)
        return [name for name, state in states if _DOWN.search(state)]

    def cluster(self) -> str | None:
        """Slurm's name of the cluster that answers here; None where scontrol is not for us.

        Raises
        ------
        ClusterError
            There was no usable answer.
        """
        return self.config().get("ClusterName")

    def config(self) -> dict[str, str]:
        """What `scontrol show config` says; asked once. Empty where scontrol is not for us.

        Raises
        ------
        ClusterError
            There was no usable answer.
        """
        if self._config is None:
            try:
                lines = self.run("scontrol", "show", "config").splitlines()
            except Forbidden:
                lines = []
            pairs = (line.partition("=") for line in lines)
            self._config = {name.strip(): value.strip() for name, equals, value in pairs if equals}
        return self._config


_SLURMS = re.compile(
    r"(\w+: )?(error|fatal): |slurm_\w+ error: |\w+: (unrecognized|invalid) option|allocation failure: "
    r"|Slurm accounting storage is disabled|Invalid job id"
)
"""How Slurm's clients begin a line on stderr; wrappers and profiles of a site print others."""


def out_of_reach(message: str) -> bool:
    """Whether an error message says that the controller was not reached, or did not answer."""
    signs = (
        "Unable to contact",
        "Socket timed out",
        "Zero Bytes were transmitted",
        "Connection refused",
        "Connection timed out",
        "Connection reset",
        "Unexpected message received",
        "Message receive failure",
        "in standby mode",
    )
    return any(sign in message for sign in signs)


def parse_queue(text: str) -> Iterator[Sighting]:
    """Rows of squeue; a row that was cut off says nothing and is left out.

    Without `-r`, or from an older squeue, one row may be several waiting elements (``0-3,7%4``).
    """
    for line in text.splitlines():
        parts = line.split("|", 7)
        if len(parts) == 8:
            array, index, job_id, state, reason, node, comment, rest = parts
            name, bar, start = rest.rpartition("|")
            if not bar or not _START.fullmatch(start):  # no column of an answer to us: a name may hold bars
                name, start = rest, ""
            word, start = state.split()[0] if state else "", start.removeprefix("N/A")
            for number in indices(index):
                yield Sighting(array, number, job_id, word, reason, node, comment, name, start)


def parse_accounting(text: str) -> Iterator[Sighting]:
    """Rows of ``sacct -X -P``; the last row of an element is its newest run."""
    for line in text.splitlines():
        parts = line.split("|", 6)
        if len(parts) != 7:
            continue
        shown, raw, state, _, node, comment, name = parts
        array, _, index = shown.partition("_")
        for number in indices(index.strip("[]")):
            yield Sighting(array, number, raw, state.split()[0] if state else "", "", node, comment, name)


def parse_jobs(text: str) -> Iterator[Sighting]:
    """Rows of ``scontrol show job -o``; one row may be several waiting elements."""
    for line in text.splitlines():
        facts = dict(re.findall(r"(\w+)=(\S*)", line))
        if "JobId" not in facts or "JobState" not in facts:
            continue
        array = facts.get("ArrayJobId", facts["JobId"])
        rest = [facts.get(name, "") for name in ("Reason", "NodeList", "Comment", "JobName")]
        for number in indices(facts.get("ArrayTaskId", "")):
            yield Sighting(array, number, facts["JobId"], facts["JobState"], *rest)


MOST_ELEMENTS = 4_000_001
"""What MaxArraySize of slurm.conf may be at most."""


def indices(text: str) -> list[int | None]:
    """Elements in squeue's array index: ``7``, ``0-3%2``, ``[1,4-6]``; [None] where it names them partly."""
    text = text.strip("[]").partition("%")[0]
    if not re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", text):
        return [None]
    found: list[int | None] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) > MOST_ELEMENTS:
            return [None]  # no row of Slurm's
        found += range(int(first), int(last or first) + 1)
    return found


ROUND_S = 300
"""The plan moves with every job that ends early: said exactly, it would be said again and again."""


def expected_start(starts: Iterable[str], now: time.struct_time) -> str:
    """Say when the first of several jobs is expected to start: ``first expected about 14:05``.

    Parameters
    ----------
    starts : local times as squeue prints them, ``2026-11-23T14:05:00``; empty where Slurm has none
    now : local time; what should have started already is not said
    """
    known = min((start for start in starts if start), default="")
    if known <= time.strftime("%Y-%m-%dT%H:%M:%S", now):
        return ""
    seconds = time.mktime(time.strptime(known, "%Y-%m-%dT%H:%M:%S"))
    start = time.localtime(-(-seconds // ROUND_S) * ROUND_S)
    today = start[:3] == now[:3]
    return f"first expected about {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', start)}"
