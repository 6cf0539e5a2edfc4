"""A storm: sweeps measured while faults fall, each of them then finished by the same command."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from storm import invariants, published, slurm_faults, sweeps, traces
from storm.fault import Fault, NoTarget
from storm.generator import Planned, planned, variant
from storm.invariants import Violation
from storm.world import World

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

    @property
    def faults(self) -> int:
        """Faults that struck something."""
        return self.struck.total()


class Storm:
    """One storm in a world."""

    def __init__(
        self, world: World, seed: int, faults: Sequence[Fault], say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.world, self.outcome, self._say = world, Outcome(seed), say
        self._planned = planned(seed, faults)
        self._next: Planned | None = None
        self._due = 0.0
        self._lasting: list[tuple[float, AbstractContextManager[str], str]] = []
        self._command: subprocess.Popen[bytes] | None = None
        self._commands, self._disk_was_struck = 0, False
        self._requeued = 0.0

    def rage(self, seconds: float) -> Outcome:
        """Measure sweeps under faults until the time is over; the last one is finished too."""
        began = time.monotonic()
        self._await_next()
        number = 0
        while time.monotonic() - began < seconds and not self.outcome.violations:
            chosen = variant(self.outcome.seed, number, self.world.cluster is not None)
            self.world.sweep = f"storm{number:03d}-{chosen.name}"
            arguments = sweeps.arguments(self.world, chosen.overrides)
            self._say(f"sweep {self.world.sweep}")
            try:
                self._under_faults(arguments, began + seconds)
                self._calm(arguments)
            finally:
                self._mended()
                self._stop()
            self._judge()
            self.outcome.sweeps[chosen.name] += 1
            number += 1
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
            self._mended()  # Slurm may hold a job, or drain a node, some time after what made it
            struck = self._command is not None  # it began while faults fell, and may end as they left it
            if self._command is None:
                self._start(arguments)
            status = self._ended(PATIENCE_S)
            if status is None:
                self._violate("hangs", f"the command did not end within {PATIENCE_S:g} s: {self._output}")
                return
            done = self._note(status) == 0 and not struck
            if done and ROWS_LACK not in self._output.read_text():
                return
        if not done:
            self._violate("unfinished", f"{CALM_COMMANDS} commands did not finish the sweep: {self._output}")

    def _start(self, arguments: tuple[str, ...]) -> None:
        self._commands += 1
        self._disk_was_struck = any(name in DISK_FAULTS for *_, name in self._lasting)
        self._command = self.world.start(arguments, self._output)

    @property
    def _output(self) -> Path:
        return self.world.root / "outputs" / f"{self._commands:04d}.txt"

    def _ended(self, seconds: float) -> int | None:
        assert self._command
        end = time.monotonic() + seconds
        while (status := self._command.poll()) is None and time.monotonic() < end:
            self._cut_waits_short()
            time.sleep(TICK_S)
        return status

    def _note(self, status: int) -> int:
        """Count how a command ended, and hold what it said against what may be said."""
        self._command = None
        self.outcome.statuses[status] += 1
        text, errors = self._output.read_text(), self._output.with_suffix(".err").read_text()
        killed = status < 0
        found = [*traces.words(text + errors, str(self._output))]
        found += [] if killed else traces.complaint(status, errors, str(self._output))
        for one in found:
            self._violate(one.kind, one.text)
        if status == 0 and not self._disk_was_struck:
            tally = invariants.tally(self.world.folder)
            if tally.found != tally.wanted:
                self._violate("lost", f"status 0 with {tally} trials: {self._output}")
        return status

    def _strike(self) -> None:
        """Let faults fall that are due, and mend those that have lasted long enough."""
        now = time.monotonic()
        for entry in [one for one in self._lasting if one[0] <= now]:
            self._lasting.remove(entry)
            entry[1].__exit__(None, None, None)
        self._cut_waits_short()
        if self._next is None or now < self._due:
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

    def _mended(self) -> None:
        """End every fault that lasts."""
        while self._lasting:
            self._lasting.pop()[1].__exit__(None, None, None)
        if self.world.cluster:
            slurm_faults.mended(self.world.cluster)

    def _cut_waits_short(self) -> None:
        if self.world.cluster and time.monotonic() - self._requeued > REQUEUED_S:
            self._requeued = time.monotonic()
            with contextlib.suppress(NoTarget):
                slurm_faults.start_waiting(self.world.cluster)

    def _stop(self) -> None:
        if self._command is not None:
            self._command.kill()
            self._command.wait()
            self._command = None

    def _judge(self) -> None:
        """Hold everything against what must be, once nothing runs any more."""
        world = self.world
        if world.cluster and (waiting := self._left_waiting()):
            self._violate("process", f"jobs were left in the queue: {', '.join(waiting)}")
        left = self._left_running()
        for pid, line in left.items():
            self._violate("process", f"{pid} was left: {line}")
        for found in self._found():
            self._violate(found.kind, found.text)
        if (world.folder / "manifest.jsonl").exists():
            self.outcome.trials += len(invariants.trials(world.folder))
        self.outcome.rows += sum(len(history) for _, history in world.published())
        if not self.outcome.violations:
            shutil.rmtree(world.folder, ignore_errors=True)
            for file in (world.root / "outputs").iterdir():
                file.unlink()

    def _found(self) -> Iterator[Violation]:
        world = self.world
        yield from invariants.violations(world.folder)
        yield from published.violations(world.folder, world.published())
        yield from traces.leftovers(world.folder)
        yield from traces.unempty(world.root / "tmp", world.cluster is not None)
        login = world.root / "home" / ".netrc"
        yield from traces.secrets(world.secrets, world.root, allowed=(login,))
        for name, content in world.sent():
            if any(secret.encode() in content for secret in world.secrets):
                yield Violation("secret", f"W&B was told one in {name}")
        yield from sweeps.words(world.folder)
        for file in sorted((world.root / "outputs").glob("beside-*.err")):
            yield from traces.words(file.read_text(), str(file))

    def _left_running(self) -> dict[int, str]:
        end = time.monotonic() + GRACE_S
        while (left := traces.processes(self.world.mark, self.world.folder)) and time.monotonic() < end:
            time.sleep(TICK_S)
        return left

    def _left_waiting(self) -> list[str]:
        """Jobs that Slurm still has: what was requeued when it was done begins again, and ends at once."""
        assert self.world.cluster
        end = time.monotonic() + JOBS_S
        left = ["unknown"]
        while left and time.monotonic() < end:
            slurm_faults.release(self.world.cluster)
            self._cut_waits_short()
            with contextlib.suppress(NoTarget):
                left = [job.name for job in slurm_faults.jobs(self.world.cluster)]
            time.sleep(TICK_S)
        return left

    def _violate(self, kind: str, text: str) -> None:
        self._say(f"VIOLATION {kind}: {text}")
        self.outcome.violations.append(Violation(kind, text))
        self.world.held[kind] = text
