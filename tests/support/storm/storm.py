"""A storm: sweeps measured while faults fall, each of them then finished by the same command.

What falls is drawn from a seed: the same one brings the same faults in the same order. When a fault falls is
given in seconds, and what it strikes as a draw from what is there: machines differ, so a replay brings the
same storm to other moments of the sweep. Each fault has a generator of its own, so that what one of them
draws moves none of the others.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from storm import faults, invariants
from storm.faults import Fault, NoTarget
from storm.invariants import Violation
from storm.world import World

SHORTEST_S, LONGEST_S = 0.3, 5.0
"""Time between two faults: 200 of them fit into 20 minutes, those that find no target included."""
TICK_S = 0.1
REQUEUED_S = 2.0
"""Time between two looks for requeued jobs, whose wait is cut short."""
ROWS_LACK = "fix this and publish again"
"""W&B never fails a sweep: on a busy machine a publisher may be given up though nothing is wrong."""
CALM_COMMANDS = 6
"""How often the same command may be needed once nothing goes wrong any more."""
PATIENCE_S = 900.0
"""How long a command may take once nothing goes wrong any more: beyond that it hangs."""
GRACE_S = 30.0
"""How long processes may take to notice that what they belonged to is over."""
JOBS_S = 90.0
"""How long Slurm may take to be through with jobs of a finished sweep."""
DISK_FAULTS = frozenset({"cut_file", "fill_disk", "forbid_folder"})


@dataclass(frozen=True)
class Planned:
    """One fault of a storm: when it falls after the one before, how long it lasts, and its own seed."""

    number: int
    fault: Fault
    after_s: float
    lasts_s: float
    seed: str

    def rng(self) -> Random:
        """What it draws from."""
        return Random(f"{self.seed}/struck")  # what chose it must not choose its target too


def planned(seed: int, faults: Sequence[Fault]) -> Iterator[Planned]:
    """Draw faults without end."""
    weights = [one.weight for one in faults]
    number = 0
    while True:
        own = f"{seed}/{number}"
        rng = Random(own)
        (chosen,) = rng.choices(faults, weights)
        yield Planned(number, chosen, rng.uniform(SHORTEST_S, LONGEST_S), rng.uniform(*chosen.seconds), own)
        number += 1


TWO_LEVELS = ("axes.slab=[2,3]", "axes.work=[single]", "measure.servers=2")
VARIANTS = {
    "usual": (TWO_LEVELS, 4),
    "long": ((*TWO_LEVELS, "measure.turn_s=0.05", "measure.region_s=0.3"), 2),
    "repeats": (("axes.slab=[2]", "axes.work=[single]", "measure.servers=2", "measure.repeats=2"), 2),
    "exec": (("axes.variable=[on]", "measure.servers=1", "measure.rounds=3"), 1),
    "shared": ((*TWO_LEVELS, "cluster.packs_per_job=2"), 3),
}
"""How a sweep of the storm measures, with its weight; jobs are shared on Slurm alone."""


def variant(seed: int, number: int, slurm: bool = False) -> str:
    """Draw how the n-th sweep of a storm measures: mostly as sweeps do by default."""
    known = [name for name in VARIANTS if slurm or name != "shared"]
    weights = [VARIANTS[name][1] for name in known]
    return Random(f"{seed}/sweep/{number}").choices(known, weights)[0]


@dataclass
class Outcome:
    """What a storm brought and what came of it."""

    seed: int
    seconds: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    sweeps: Counter[str] = field(default_factory=Counter)
    trials: int = 0
    rows: int = 0
    violations: list[Violation] = field(default_factory=list)


class Storm:
    """One storm in a world."""

    def __init__(
        self, world: World, seed: int, faults: Sequence[Fault], say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.world, self.outcome, self._say = world, Outcome(seed), say
        self._planned = planned(seed, faults)
        self._lasting: list[tuple[float, AbstractContextManager[str], str]] = []
        self._command: subprocess.Popen[bytes] | None = None
        self._commands, self._disk_was_struck = 0, False
        self._requeued = 0.0
        self._await_next()

    def rage(self, seconds: float) -> Outcome:
        """Measure sweeps under faults until the time is over; the last one is finished too."""
        began = time.monotonic()
        while time.monotonic() - began < seconds and not self.outcome.violations:
            number = self.outcome.sweeps.total()
            chosen = variant(self.outcome.seed, number, self.world.cluster is not None)
            self.world.sweep = f"storm{number:03d}-{chosen}"
            arguments = self.world.arguments(*VARIANTS[chosen][0])
            self._say(f"sweep {self.world.sweep}")
            try:
                self._under_faults(arguments, began + seconds)
                self._calm(arguments)
            finally:
                self._restored()
                if self._command is not None:
                    self._command.kill()
                    self._command.wait()
                    self._command = None
            self._judge()
            self.outcome.sweeps[chosen] += 1
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _under_faults(self, arguments: tuple[str, ...], deadline: float) -> None:
        """Start the command again and again until it says that it is done, or the time is over."""
        while time.monotonic() < deadline:
            self._strike()
            if self._command is None:
                self._start(arguments)
            elif (status := self._command.poll()) is not None:
                self._note(status)
                if status == 0:
                    return
            time.sleep(TICK_S)

    def _calm(self, arguments: tuple[str, ...]) -> None:
        """The same command, with nothing going wrong any more, until it says that it is done."""
        for _ in range(CALM_COMMANDS):
            self._restored()  # Slurm may hold a job, or drain a node, some time after what made it
            struck = self._command is not None  # it began while faults fell, and may end as they left it
            command = self._command or self._start(arguments)
            if not self._by(PATIENCE_S, lambda command=command: command.poll() is not None):
                self._violate("hangs", f"the command did not end within {PATIENCE_S:g} s: {self._output}")
                return
            done = self._note(command.returncode) == 0 and not struck
            if done and ROWS_LACK not in self._output.read_text():
                return
        if not done:
            self._violate("unfinished", f"{CALM_COMMANDS} commands did not finish the sweep: {self._output}")

    def _start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
        self._commands += 1
        self._disk_was_struck = any(name in DISK_FAULTS for *_, name in self._lasting)
        self._command = self.world.start(arguments, self._output)
        return self._command

    @property
    def _output(self) -> Path:
        return self.world.outputs / f"{self._commands:04d}.txt"

    def _by(self, seconds: float, condition: Callable[[], object]) -> bool:
        """Whether something holds in time; requeued jobs do not wait meanwhile."""
        end = time.monotonic() + seconds
        while not (holds := condition()) and time.monotonic() < end:
            self._cut_waits_short()
            time.sleep(TICK_S)
        return bool(holds)

    def _note(self, status: int) -> int:
        """Count how a command ended, and hold what it said against what may be said."""
        self._command = None
        self.outcome.statuses[status] += 1
        text, errors = self._output.read_text(), self._output.with_suffix(".err").read_text()
        found = [*invariants.words(text + errors, str(self._output))]
        if status >= 0:  # else it was killed
            found += invariants.complaint(status, errors, str(self._output))
        if status == 0 and not self._disk_was_struck:
            tally = invariants.tally(self.world.folder)
            if tally.found != tally.wanted:
                found.append(Violation("lost", f"status 0 with {tally} trials: {self._output}"))
        for one in found:
            self._violate(one.kind, one.text)
        return status

    def _strike(self) -> None:
        """Let faults fall that are due, and restore what has lasted long enough."""
        now = time.monotonic()
        for entry in [one for one in self._lasting if one[0] <= now]:
            self._lasting.remove(entry)
            entry[1].__exit__(None, None, None)
        self._cut_waits_short()
        if now < self._due:
            return
        chosen = self._next
        shown = chosen.fault.shown(self.world, chosen.rng())
        try:
            what = shown.__enter__()
        except NoTarget:
            self.outcome.missed[chosen.fault.name] += 1
        else:
            self._say(f"  {chosen.number:4d} {chosen.fault.name}: {what}")
            self.outcome.struck[chosen.fault.name] += 1
            self._disk_was_struck |= chosen.fault.name in DISK_FAULTS
            self._lasting.append((now + chosen.lasts_s, shown, chosen.fault.name))
        self._await_next()

    def _await_next(self) -> None:
        self._next = next(self._planned)
        self._due = time.monotonic() + self._next.after_s

    def _restored(self) -> None:
        """End every fault that lasts."""
        while self._lasting:
            self._lasting.pop()[1].__exit__(None, None, None)
        if self.world.cluster:
            faults.restored(self.world.cluster)

    def _cut_waits_short(self) -> None:
        if self.world.cluster and time.monotonic() - self._requeued > REQUEUED_S:
            self._requeued = time.monotonic()
            faults.start_waiting(self.world.cluster)

    def _judge(self) -> None:
        """Hold everything against what must be, once nothing runs any more."""
        for found in self._found():
            self._violate(found.kind, found.text)
        if (self.world.folder / "manifest.jsonl").exists():
            self.outcome.trials += len(invariants.trials(self.world.folder))
        self.outcome.rows += sum(len(history) for _, history in self.world.published())
        if not self.outcome.violations:
            shutil.rmtree(self.world.folder, ignore_errors=True)
            for file in self.world.outputs.iterdir():
                file.unlink()

    def _found(self) -> Iterator[Violation]:
        world = self.world
        if world.cluster and not self._by(JOBS_S, self._queue_is_empty):
            yield Violation("process", "jobs were left in the queue")
        self._by(GRACE_S, lambda: not invariants.processes(world.mark, world.folder))
        for pid, line in invariants.processes(world.mark, world.folder).items():
            yield Violation("process", f"{pid} was left: {line}")
        yield from invariants.violations(world.folder, world.published())
        yield from invariants.unempty(world.root / "tmp", world.cluster is not None)
        yield from world.traces()
        for name, content in world.sent():
            if any(secret.encode() in content for secret in world.secrets):
                yield Violation("secret", f"W&B was told one in {name}")
        for file in sorted(world.outputs.glob("second-*.err")):
            yield from invariants.words(file.read_text(), str(file))

    def _queue_is_empty(self) -> bool:
        """What was requeued when it was done begins again, and ends at once."""
        faults.release(self.world.slurm)
        with suppress(NoTarget):
            return not faults.jobs(self.world.slurm)
        return False

    def _violate(self, kind: str, text: str) -> None:
        self._say(f"VIOLATION {kind}: {text}")
        self.outcome.violations.append(Violation(kind, text))
        self.world.kept[kind] = text
