"""A sweep on the development Slurm that meets one fault: the two lists are played here."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import waiting
from bench import Bench
from dev_slurm.cluster import DevCluster

from perfsweep.slurm.errors import ClusterError
from storm import invariants, slurm_faults, sweeps, traces
from storm.fault import FAULTS, NoTarget
from storm.invariants import Tally, Violation
from storm.world import World

ONE = (
    *("axes.work=[single]", "workload.products=10", "workload.pause_s=0.005"),
    *("measure.iterations=120", "measure.rounds=6"),
)
"""Two arms, six rounds: one job of some ten seconds, of which it sleeps most."""

TWO = (*ONE, "axes.slab=[2,3]", "cluster.arms_per_pack=3", "measure.rounds=4")
"""Four arms, in two jobs."""

THREE = (*TWO, "cluster.arms_per_pack=2")
"""As above, in three jobs."""

LONG = (*ONE, "measure.rounds=12", "measure.iterations=400")
"""As ONE, for half a minute and more."""

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
    """A fault of a list: what is done, and what is expected.

    Attributes
    ----------
    id : its number in the list
    status : of the same command, once the fault is over: 1 where an arm fails by itself
    """

    id: str
    fault: str
    expected: str
    play: Callable[[Stage], str]
    status: int = 0


CASES: dict[str, Case] = {}


def case(id: str, fault: str, expected: str, status: int = 0) -> Callable[[Callable[[Stage], str]], Any]:
    """Register what is played under a number of a list."""

    def register(play: Callable[[Stage], str]) -> Callable[[Stage], str]:
        CASES[id] = Case(id, fault, expected, play, status)
        return play

    return register


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

    `arguments` are those of the command that is repeated when the fault is over; `last` are those of the
    command that ended last, with its status.
    """

    world: World
    arguments: tuple[str, ...] = ()
    said: dict[int, Path] = field(default_factory=dict)
    started: dict[int, tuple[str, ...]] = field(default_factory=dict)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    last: tuple[tuple[str, ...], int] | None = None

    @property
    def cluster(self) -> DevCluster:
        """The Slurm that everything runs on."""
        assert self.world.cluster
        return self.world.cluster

    @property
    def folder(self) -> Path:
        """The sweep's folder."""
        return self.world.folder

    @property
    def bench(self) -> Bench:
        """Slurm's word about jobs."""
        return Bench(self.cluster, self.world.root)

    def command(self, *overrides: str) -> tuple[str, ...]:
        """The arguments of a sweep here; what comes later wins, and ``-KEY`` takes one out."""
        every = sweeps.arguments(self.world, ("tracking=disabled", "retry=[]", *overrides))
        words = {word.partition("=")[0]: word for word in every}
        gone = {word.removeprefix("-") for word in words if word.startswith("-")}
        return tuple(word for key, word in words.items() if key not in gone and not key.startswith("-"))

    def sweep(self, *overrides: str) -> subprocess.Popen[bytes]:
        """Start a sweep that the same command is to finish later."""
        self.arguments = self.command(*overrides)
        return self.start(*self.arguments)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start any command."""
        output = self.world.root / "outputs" / f"{self.world.sweep}-{len(self.said):02d}.txt"
        process = self.world.start(arguments, output)
        self.said[process.pid], self.started[process.pid] = output, arguments
        self.processes.append(process)
        return process

    def says(self, process: subprocess.Popen[bytes], words: str) -> bool:
        """Whether a command has said this by now, on either stream."""
        output = self.said[process.pid]
        return any(words in file.read_text() for file in (output, output.with_suffix(".err")))

    def ended(self, process: subprocess.Popen[bytes], *statuses: int) -> str:
        """Wait for a command, which is to end with one of these statuses; what it said, in one line."""
        until(lambda: process.poll() is not None, f"the end of {self.said[process.pid]}", LATEST_S)
        output = self.said[process.pid]
        text = output.read_text() + output.with_suffix(".err").read_text()
        self.last = self.started[process.pid], process.returncode
        assert process.returncode in (statuses or (0,)), f"status {process.returncode}: {text[-600:]}"
        return " ".join(text.split())

    def run(self, *arguments: str, status: int = 0) -> str:
        """Run a command to its end."""
        return self.ended(self.start(*arguments), status)

    def round_done(self, number: int = 0, pack: str = "p000") -> None:
        """Wait until both arms of a round have records."""
        pattern = f"trials/*/{pack}-r{number:03d}-a*/record.json"
        until(lambda: len(list(self.folder.glob(pattern))) >= 2, f"round {number} of {pack}")

    def lines(self) -> list[dict[str, Any]]:
        """The journal of submissions."""
        file = self.folder / "submissions.jsonl"
        found = []
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def events(self, event: str) -> list[dict[str, Any]]:
        """Lines of the journal of one kind."""
        return [line for line in self.lines() if line.get("event") == event]

    def ends(self, name: str = "p000") -> list[str]:
        """How the submissions of a job ended, in our words."""
        return [line["end"] for line in self.events("ended") if line["name"] == name]

    @property
    def array(self) -> str:
        """Slurm's number of the latest submission."""
        until(lambda: self.events("submitted"), "a submission")
        return str(self.events("submitted")[-1]["array"])

    def element(self, index: int = 0) -> str:
        """An element of the latest submission."""
        return f"{self.array}_{index}"

    def state(self, job: str) -> str:
        """Slurm's word for how a job stands."""
        return self.bench.show(job)["JobState"]

    def runs(self, job: str) -> None:
        """Wait until Slurm calls a job running."""
        until(lambda: self.state(job) == "RUNNING", f"the start of {job}")

    def requeues_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds; requeued jobs do not wait their two minutes meanwhile."""
        patiently(lambda: slurm_faults.start_waiting(self.cluster) or condition(), what)

    def attempts(self) -> list[dict[str, Any]]:
        """Facts of each start of the first pack."""
        files = sorted(self.folder.glob("packs/p000/attempts/*.json"), key=lambda file: int(file.stem))
        return [json.loads(file.read_text()) for file in files]

    @contextmanager
    def under(self, name: str, seed: str = "0") -> Iterator[str]:
        """Show a fault of the storm's by its name, once there is somebody whom it can strike."""
        shown: list[Any] = []

        def struck() -> bool:
            one = FAULTS[name].shown(self.world, Random(seed))
            try:
                what = one.__enter__()
            except NoTarget:
                return False
            shown.extend((one, what))
            return True

        until(struck, f"somebody whom {name} can strike")
        try:
            yield shown[1]
        finally:
            shown[0].__exit__(None, None, None)

    def strike(self, name: str) -> str:
        """Show a fault that is over at once."""
        with self.under(name) as what:
            return what

    def pid(self) -> int:
        """Process of the latest start of the first pack."""
        return int(self.attempts()[-1]["pid"])


def until(condition: Callable[[], object], what: str, deadline_s: float = STEP_S) -> None:
    """Wait for a step of a case."""
    waiting.until(condition, what, deadline_s)


def patiently(condition: Callable[[], object], what: str) -> None:
    """Wait long for what asks Slurm at each look."""

    def holds() -> object:
        time.sleep(SELDOM_S)
        return condition()

    until(holds, what, LATEST_S)


def played(world: World, one: Case) -> Played:
    """Play a case, finish its sweep by the same command, and hold all of it against what must be."""
    began = time.monotonic()
    world.sweep = f"{one.id.lower()}-{len(list(world.runs.iterdir()))}"
    stage, problems = Stage(world), list[str]()
    outcome = tried(problems, lambda: _whole(stage, one)) or ""
    tried(problems, lambda: _clear(stage))
    tally = invariants.tally(world.folder) if (world.folder / "manifest.jsonl").exists() else Tally(0, 0)
    if tally.wanted != tally.found or not tally.wanted:
        problems.append(f"{tally} trials")
    if problems:
        world.held[one.id] = problems[0]
    return Played(one, outcome, tally, problems, time.monotonic() - began)


def tried(problems: list[str], step: Callable[[], str | None]) -> str | None:
    """Do a step; what breaks it off is a problem of the case."""
    try:
        return step()
    except _BREAKS_OFF as error:
        problems.append(" ".join(f"{type(error).__name__}: {error}".split())[:400])
        return None


def _whole(stage: Stage, one: Case) -> str:
    """The outcome of a case whose sweep could be finished, and has nothing against it.

    Raises
    ------
    AssertionError
        Something is not as it must be.
    """
    outcome = one.play(stage)
    _finish(stage, one.status)
    found = [str(violation) for violation in _violations(stage)]
    assert not found, "; ".join(found)
    return outcome


def _clear(stage: Stage) -> None:
    """End what a case has left behind: the next one meets an idle cluster."""
    for process in stage.processes:
        if process.poll() is None:
            process.kill()
            process.wait()
    slurm_faults.mended(stage.cluster)
    stage.cluster.client("scancel", "--me", check=False)
    until(lambda: not slurm_faults.jobs(stage.cluster), "an empty queue")


def _finish(stage: Stage, status: int) -> None:
    """Start the same command again until it ends as it should, unless it has done so just now."""
    slurm_faults.mended(stage.cluster)
    if stage.last == (stage.arguments, status):
        return
    for _ in range(AGAIN):
        process = stage.start(*stage.arguments)
        stage.ended(process, 0, 1)
        if process.returncode == status:
            return
    raise AssertionError(f"{AGAIN} commands did not end with status {status}: {stage.said[process.pid]}")


def _violations(stage: Stage) -> Iterator[Violation]:
    world = stage.world
    until(lambda: not traces.processes(world.mark, world.folder), "the end of all processes", 60)
    yield from invariants.violations(world.folder)
    yield from traces.leftovers(world.folder)
    login, own = world.root / "home" / ".netrc", world.folder / "submissions" / "env_set.sh"
    yield from traces.secrets(world.secrets, world.folder, world.root / "outputs", allowed=(login, own))
    for output in stage.said.values():
        for file in (output, output.with_suffix(".err")):
            yield from traces.words(file.read_text(), str(file))
    yield from sweeps.words(world.folder)
