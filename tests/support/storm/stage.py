"""A sweep on the development Slurm that meets one fault: a row of the table of cases, and what plays it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import waiting
from bench import Bench

from perfsweep.slurm.errors import ClusterError
from storm import faults, invariants
from storm.faults import FAULTS, NoTarget
from storm.invariants import Tally
from storm.world import World

ONE = (
    *("axes.work=[single]", "workload.products=10", "workload.pause_s=0.005"),
    *("measure.iterations=120", "measure.rounds=6"),
)
"""Two arms, six rounds: one job of some ten seconds, of which it sleeps most."""

LATEST_S = 900.0
"""A command that has not ended by then hangs, on the slowest machine."""
STEP_S = 400.0
"""As above, of a step within a command."""
SELDOM_S = 1.0
"""Time between two looks where a minute or more may pass."""
AGAIN = 4
"""How often the same command may be needed after a fault."""

_BREAKS_OFF = (AssertionError, ClusterError, NoTarget, LookupError, OSError, ValueError)
"""What ends a case before its time: it alone went wrong, and the next one is played."""


@dataclass(frozen=True)
class Case:
    """A row: what is done to a sweep while its command runs, and what must hold of it.

    Attributes
    ----------
    id : its number in the list
    sweep : overrides of the sweep
    first : before the command is started; overrides that it returns are added
    under : faults from before the start, until they are ended or the command has ended
    at : a round that must have been measured before `deed`; None: at once
    deed : what is done while the command runs; a text names a fault that strikes
    status : how the command may end
    says : what it must have said by then, on either stream
    after : what else must hold, given all that it said in one line
    ends : how the submissions of each pack ended, in our words, packs separated by ``;``; None: not looked at
    submissions, starts : how many there were, of jobs and of the first pack; None: not looked at
    remedy : overrides of the command that finishes the sweep, where the same one does not
    finally_ : status of that command: 1 where an arm fails by itself
    """

    id: str
    fault: str
    expected: str
    sweep: tuple[str, ...] = ONE
    first: Callable[[Stage], Sequence[str] | None] = lambda stage: None
    under: tuple[str, ...] = ()
    at: int | None = 0
    deed: str | Callable[[Stage], object] = lambda stage: None
    status: int | tuple[int, ...] = 0
    says: tuple[str, ...] = ()
    after: Callable[[Stage, str], object] = lambda stage, text: None
    ends: str | None = "done"
    submissions: int | None = 1
    starts: int | None = None
    remedy: tuple[str, ...] | None = None
    finally_: int = 0


@dataclass(frozen=True)
class Played:
    """How a case went: its outcome in words, trials, and everything that was not as it must be."""

    case: Case
    outcome: str
    tally: Tally
    problems: list[str]
    seconds: float


@dataclass
class Stage:
    """What a case uses: commands, the jobs that they have submitted, and Slurm's word about those.

    `arguments` are those of the command that is repeated when the fault is over, `last` those of the command
    that ended last, with its status.
    """

    world: World
    arguments: tuple[str, ...] = ()
    said: dict[int, tuple[Path, tuple[str, ...]]] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lasting: dict[str, AbstractContextManager[Any]] = field(default_factory=dict)
    last: tuple[tuple[str, ...], int] | None = None

    def __post_init__(self) -> None:
        self.cluster, self.folder = self.world.slurm, self.world.folder
        self.bench = Bench(self.cluster, self.world.root)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The command that the fault meets."""
        return self.processes[0]

    def command(self, *overrides: str) -> tuple[str, ...]:
        """The arguments of a sweep here; what comes later wins, and ``-KEY`` takes one out."""
        every = self.world.arguments("tracking=disabled", "retry=[]", *overrides)
        words = {word.partition("=")[0]: word for word in every}
        gone = {word.removeprefix("-") for word in words if word.startswith("-")}
        return tuple(word for key, word in words.items() if key not in gone and not key.startswith("-"))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start any command."""
        output = self.world.outputs / f"{self.world.sweep}-{len(self.said):02d}.txt"
        process = self.world.start(arguments, output)
        self.said[process.pid] = output, arguments
        self.processes.append(process)
        return process

    def text(self, process: subprocess.Popen[bytes]) -> str:
        """What a command has said by now on both streams."""
        output, _ = self.said[process.pid]
        return output.read_text() + output.with_suffix(".err").read_text()

    def ended(self, process: subprocess.Popen[bytes], *statuses: int) -> str:
        """Wait for a command, which is to end with one of these statuses; what it said, in one line."""
        until(lambda: process.poll() is not None, f"the end of {self.said[process.pid][0]}", LATEST_S)
        text = self.text(process)
        self.last = self.said[process.pid][1], process.returncode
        assert process.returncode in (statuses or (0,)), f"status {process.returncode}: {text[-600:]}"
        return " ".join(text.split())

    def interrupt(self) -> None:
        """Ctrl-C to the command, which ends by it."""
        self.process.send_signal(signal.SIGINT)
        self.ended(self.process, 130)

    def run(self, *arguments: str, status: int | tuple[int, ...] = 0) -> str:
        """Run a command to its end."""
        return self.ended(self.start(*arguments), *((status,) if isinstance(status, int) else status))

    def begin(self, name: str, shown: AbstractContextManager[Any] | None = None) -> None:
        """Have a fault strike, the one of that name by default, which lasts until it is ended."""
        shown = shown or FAULTS[name].shown(self.world, Random(name))
        shown.__enter__()
        self.lasting[name] = shown

    def end(self, *names: str) -> None:
        """End faults, all by default."""
        for name in names or [*self.lasting]:
            self.lasting.pop(name).__exit__(None, None, None)

    def round_done(self, number: int = 0) -> None:
        """Wait until both arms of a round of the first pack have records."""
        pattern = f"trials/*/p000-r{number:03d}-a*/record.json"
        until(lambda: len(list(self.folder.glob(pattern))) >= 2, f"round {number} of p000")

    def events(self, event: str) -> list[dict[str, Any]]:
        """Lines of the journal of submissions of one kind."""
        file, found = self.folder / "submissions.jsonl", []
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return [line for line in found if line.get("event") == event]

    def submitted(self, number: int = 1) -> None:
        """Wait until so many submissions were answered."""
        until(lambda: len(self.events("submitted")) >= number, "a submission")

    def ends(self, name: str = "p000") -> list[str]:
        """How the submissions of a job ended, in our words."""
        return [line["end"] for line in self.events("ended") if line["name"] == name]

    def element(self, index: int = 0) -> str:
        """An element of the latest submission."""
        self.submitted()
        return f"{self.events('submitted')[-1]['array']}_{index}"

    def fact(self, job: str, name: str) -> str:
        """What Slurm says of a job, such as its JobState, NodeList or Restarts."""
        return self.bench.show(job)[name]

    def becomes(self, job: str, value: str, name: str = "JobState") -> None:
        """Wait until Slurm says so of a job."""
        until(lambda: self.fact(job, name) == value, f"{name}={value} of {job}")

    def requeues_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds; requeued jobs do not wait their two minutes meanwhile."""
        patiently(lambda: faults.start_waiting(self.cluster) or condition(), what)

    def attempts(self) -> list[dict[str, Any]]:
        """Facts of each start of the first pack."""
        files = sorted(self.folder.glob("packs/p000/attempts/*.json"), key=lambda file: int(file.stem))
        return [json.loads(file.read_text()) for file in files]

    def started(self, number: int) -> None:
        """Wait for so many starts of the first pack."""
        until(lambda: len(self.attempts()) == number, f"start {number}")

    def strike(self, name: str) -> None:
        """Have a fault strike that is over at once."""
        with FAULTS[name].shown(self.world, Random(name)):
            pass

    @property
    def pid(self) -> int:
        """Process of the latest start of the first pack."""
        return int(self.attempts()[-1]["pid"])

    @property
    def variables(self) -> list[bytes]:
        """Environment of that process."""
        return Path(f"/proc/{self.pid}/environ").read_bytes().split(b"\0")


def until(condition: Callable[[], object], what: str, deadline_s: float = STEP_S) -> None:
    """Wait for a step of a case."""
    waiting.until(condition, what, deadline_s)


def patiently(condition: Callable[[], object], what: str) -> None:
    """Wait long for what asks Slurm at each look."""

    def holds() -> object:
        time.sleep(SELDOM_S)
        return condition()

    until(holds, what, LATEST_S)


def played(world: World, case: Case) -> Played:
    """Play a case, finish its sweep by the same command, and hold all of it against what must be."""
    began = time.monotonic()
    world.sweep = f"{case.id.lower()}-{len(list(world.runs.iterdir()))}"
    stage, problems = Stage(world), list[str]()
    with told_to(problems):
        _play(stage, case)
    with told_to(problems):
        _clear(stage)
    tally = invariants.tally(world.folder) if (world.folder / "manifest.jsonl").exists() else Tally(0, 0)
    if tally.wanted != tally.found or not tally.wanted:
        problems.append(f"{tally} trials")
    if problems:
        world.kept[case.id] = problems[0]
    ends = ", ".join(stage.ends()) or "no job ended"
    outcome = f"{ends}: {len(stage.events('submitting'))} submitted, {len(stage.attempts())} started"
    return Played(case, outcome, tally, problems, time.monotonic() - began)


@contextmanager
def told_to(problems: list[str]) -> Iterator[None]:
    """What breaks the block off is a problem of the case."""
    try:
        yield
    except _BREAKS_OFF as error:
        problems.append(" ".join(f"{type(error).__name__}: {error}".split())[:400])


def _play(stage: Stage, case: Case) -> None:
    stage.arguments = stage.command(*case.sweep, *(case.first(stage) or ()))
    for name in case.under:
        stage.begin(name)
    process = stage.start(*stage.arguments)
    if case.at is not None:
        stage.round_done(case.at)
    stage.strike(case.deed) if isinstance(case.deed, str) else case.deed(stage)
    text = stage.ended(process, *((case.status,) if isinstance(case.status, int) else case.status))
    stage.end()
    for words in case.says:
        assert words in text, f"{words!r} was not said: {text[-400:]}"
    case.after(stage, text)
    if case.ends is not None:
        packs = [pack.strip() for pack in case.ends.split(";")]
        found = [", ".join(stage.ends(f"p{number:03d}")) for number in range(len(packs))]
        assert found == packs, f"ends {found}"
    for wanted, counted in ((case.submissions, stage.events("submitting")), (case.starts, stage.attempts())):
        assert wanted in (None, len(counted)), f"{len(counted)} instead of {wanted}: {counted}"
    if case.remedy is not None:
        stage.arguments = stage.command(*case.remedy)
    _finish(stage, case.finally_)
    until(lambda: not invariants.processes(stage.world.mark, stage.folder), "the end of all processes", 60)
    against = [*invariants.violations(stage.folder)]
    against += stage.world.traces(stage.folder / "submissions" / "env_set.sh")
    for process in stage.processes:
        against += invariants.words(stage.text(process), str(stage.said[process.pid][0]))
    assert not against, "; ".join(map(str, against))


def _finish(stage: Stage, status: int) -> None:
    """Start the same command again until it ends as it should, unless it has done so just now."""
    faults.restored(stage.cluster)
    for _ in range(AGAIN):
        if stage.last == (stage.arguments, status):
            return
        stage.run(*stage.arguments, status=(0, 1))
    assert stage.last == (stage.arguments, status), f"{AGAIN} commands did not end with status {status}"


def _clear(stage: Stage) -> None:
    """End what a case has left: the next one meets an idle cluster."""
    stage.end()
    for process in stage.processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    faults.restored(stage.cluster)
    stage.cluster.client("scancel", "--me", check=False)
    until(lambda: not faults.jobs(stage.cluster), "an empty queue")
