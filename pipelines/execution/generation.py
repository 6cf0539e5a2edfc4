"""A generation: one process for each arm, set up and warm, of which exactly one works at a time.

What slows a core for longer than a turn slows all arms alike, and so leaves their ratios as they are. An arm
whose workers, threads or ranks would work on while it waits is stopped meanwhile. Only an arm that cannot be
stopped, or does not fit into memory with the others, is measured by itself after them, and changes nothing
for the rest.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from perfsweep.pipelines.execution.endings import record_of
from perfsweep.pipelines.execution.servers import Servers
from perfsweep.pipelines.execution.spawn import Child, Starter, Termination, end, receive
from perfsweep.pipelines.store.records import Failure, Outcome, TrialRecord, TrialSpec, write_spec
from perfsweep.pipelines.store.writers import AtWork
from perfsweep.pipelines.trial import scratch
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.environment import HostUsage
from perfsweep.pipelines.trial.parent import Ready, Reply, Turn, children_of, descendants

MEMORY_SHARE = 0.9
"""Share of memory that the arms of a generation may take together."""

COLD_NS = 2_000_000
"""Untimed work at the start of a turn, until caches hold the arm's data again."""

LONG_NS = 50_000_000
"""Iterations from which none is left untimed: cold caches are a small part of them. They were 10 to 25 % of
iterations of 5 to 20 ms."""


@dataclass(frozen=True)
class Trial:
    """A timing trial of one arm: its spec, the folder it writes to, and the variables its levels need."""

    spec: TrialSpec
    folder: Path
    env: Mapping[str, str]


@dataclass(frozen=True)
class Begun:
    """A trial by itself that runs, since `began` by `time.monotonic`."""

    spec: TrialSpec
    folder: Path
    began: float
    children: Sequence[Child]


class _Arm:
    """An arm that takes turns: its processes, and what they said when they were warm.

    `single`: one thread does all of its work, and no other process of it is there.
    """

    def __init__(
        self, trial: Trial, children: Sequence[Child], ready: Sequence[Ready], turn_s: float, began: float
    ) -> None:
        self.trial, self.children = trial, children
        self.rests = all(one.rests for one in ready)
        step_ns = max(one.step_ns for one in ready)
        self._steps = max(1, round(turn_s * 1e9 / step_ns))
        # Of an arm whose helpers work ahead no step may be left out: the one after a long wait is short.
        spares = self.rests and ready[0].spares and step_ns < LONG_NS
        self._untimed = max(1, math.ceil(COLD_NS / step_ns)) if spares else 0
        self.turns = math.ceil(ready[0].steps / self._steps)
        self.own_s = 0.0
        self.took_s = time.monotonic() - began
        self.over = self.single = self._stopped = False

    def due(self, cycle: int, cycles: int) -> bool:
        """Whether a cycle has a turn of this arm: those of a fast arm are spread over all cycles."""
        at, then = (min(done, cycles) * self.turns // cycles for done in (cycle, cycle + 1))
        return cycle >= cycles or then > at

    def work(self) -> None:
        """Begin a turn."""
        self.tell(Turn(self._steps, self._untimed))

    def tell(self, word: object) -> None:
        """Say something to all ranks."""
        self.go_on()
        for child in self.children:
            with suppress(OSError):  # it has died; `receive` says how
                if child.pipe:
                    child.pipe.send(word)

    def wait(self) -> None:
        """Keep it from working, where it would work on, or has processes that may.

        Raises
        ------
        PermissionError
            A process of it is another user's.
        """
        helped = any(children_of(child.pid) for child in self.children)
        self.single = self.rests and len(self.children) == 1 and not helped
        if helped or not self.rests:
            self._stopped = True
            _signal(self.children, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it work again."""
        if self._stopped:
            self._stopped = False
            _signal(self.children, signal.SIGCONT)

    def keep_to(self, core: int) -> None:
        """Let it work on one core alone, where one thread does its work; what that has started has all."""
        if self.rests and len(self.children) == 1:
            with suppress(OSError):  # it has died, or the system has no such call
                os.sched_setaffinity(self.children[0].pid, {core})

    def end(self) -> None:
        """End its processes; processes that end by themselves once it has gone must not be stopped then."""
        with suppress(PermissionError):
            self.go_on()
        end(self.children)


class _Spare:
    """The cores that arms of one thread leave, and what works there meanwhile."""

    def __init__(self, ahead: Servers | None, cores: Collection[int]) -> None:
        self._ahead, self._cores, self._in_use = ahead, cores, False

    def use(self) -> None:
        """Let it work."""
        if self._ahead and not self._in_use:
            self._ahead.import_ahead(self._cores)
        self._in_use = True

    def leave_to(self, arm: _Arm) -> None:
        """Before a turn: let it wait where the arm may need the cores too."""
        if arm.single:
            self.use()
        elif self._ahead and self._in_use:
            self._ahead.rest_ahead()
            self._in_use = False

    def used_s(self) -> float:
        """CPU time, in seconds, that it took so far."""
        return self._ahead.ahead_s() if self._ahead else 0.0


def _signal(children: Sequence[Child], number: int) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
    told: set[int] = set()
    # They may have groups of their own, and start others as long as they work.
    while new := set(descendants(child.pid for child in children)) - told:
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        told |= new


class Generation:
    """The processes of one generation. Leaving the `with` block ends them all.

    Parameters
    ----------
    memory_bytes : memory of the device, 0 where it is unknown
    timeout_s : of set-up and warm-up together, and of each turn
    turn_s : timed seconds of a turn, whole iterations
    began : when the round began (`time.monotonic`): its arms share what it took in addition to their turns
    at_work : file that says which arm works, as long as one does

    Attributes
    ----------
    alone : trials that are to be measured by themselves, each with the reason
    rare : of arms whose warm-up has seen a whole cadence, its places that take longer than others
    """

    def __init__(
        self, memory_bytes: int, timeout_s: float, turn_s: float, began: float, at_work: Path | None = None
    ) -> None:
        self._at_work = AtWork(at_work)
        self._memory_bytes = memory_bytes
        self._timeout_s = timeout_s
        self._turn_s = turn_s
        self._began = began
        self._arms: list[_Arm] = []
        self._ended: list[tuple[Trial, float, Termination]] = []
        self._folders: list[Path] = []
        self._taken_bytes = 0
        self.alone: list[tuple[Trial, str]] = []
        self.rare: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> Generation:
        return self

    def __exit__(self, *exception: object) -> None:
        for arm in self._arms:
            arm.end()
        self._arms.clear()
        for folder in self._folders:  # killed processes have not removed theirs
            scratch.remove(folder)
        self._at_work.close()

    def start(self, trial: Trial, starter: Starter) -> None:
        """Start an arm and wait until it is warm."""
        began = time.monotonic()
        spec_file = write_spec(trial.folder, trial.spec)
        self._folders.append(trial.folder)
        children = starter.start(spec_file, trial.spec.world, trial.env, stay=True)
        if any(child.pipe is None for child in children):
            end(children)
            self.alone.append((trial, "it has ranks on other nodes"))
            return
        try:
            replies = self._replies(trial, children, began)
        except BaseException:
            end(children)
            raise
        ready = [reply.ready for reply in replies if reply.ready]
        if not ready:
            return
        places = [one.rare for one in ready if one.rare is not None]
        if len(places) == len(ready):  # ranks iterate together, so that all leave the same ones untimed
            self.rare[trial.spec.arm.id] = tuple(sorted(set[int]().union(*places)))
        arm = _Arm(trial, children, ready, self._turn_s, began)
        self._arms.append(arm)
        taken_bytes = sum(one.taken_bytes for one in ready)
        room = max(0.0, MEMORY_SHARE * self._memory_bytes - self._taken_bytes)
        if self._memory_bytes and taken_bytes > room and len(self._arms) > 1:
            self._leave(
                arm, f"it takes {taken_bytes / 2**30:.1f} GiB, and the others leave {room / 2**30:.1f}"
            )
            return
        self._taken_bytes += taken_bytes
        self._stop(arm)

    def run(self, rng: random.Random, ahead: Servers | None = None) -> Iterator[tuple[Trial, TrialRecord]]:
        """Let one arm work while all others wait, cycle by cycle in random order; records as they end.

        A record that its process could not write is written here; see `record_of`. `ahead` works meanwhile on
        the other cores, and waits while an arm that needs them has its turn.
        """
        # Cores differ, by what shares them with this machine: arms on different ones would too.
        cores = sorted(os.sched_getaffinity(0))
        core = rng.choice(cores)
        for arm in self._arms:
            arm.keep_to(core)
        spare = _Spare(ahead if len(cores) > 1 else None, [one for one in cores if one != core])
        spare.use()
        before, before_s = environment.host_usage(), spare.used_s()
        cycles = max((arm.turns for arm in self._arms), default=0)
        cycle = 0
        while left := [arm for arm in self._arms if not arm.over]:
            due = [arm for arm in left if arm.due(cycle, cycles)]
            for arm in rng.sample(due, len(due)):
                spare.leave_to(arm)
                self._turn(arm)
            cycle += 1
        spare.use()
        # What the arms did themselves, and the pack for them, is no disturbance.
        after = environment.host_usage()
        own_s = sum(arm.own_s for arm in self._arms) + spare.used_s() - before_s
        after = replace(after, own_s=after.own_s + own_s)
        shared_s = time.monotonic() - self._began - sum(arm.took_s for arm in self._arms)
        shared_s = max(0.0, shared_s) / max(1, len(self._arms))
        for arm in tuple(self._arms):
            yield arm.trial, self._finish(arm, (before, after), shared_s)
        for trial, began, termination in self._ended:
            yield trial, record_of(trial.spec, trial.folder, began, termination)

    def _turn(self, arm: _Arm) -> None:
        began = time.monotonic()
        arm.work()
        replies = self._replies(arm.trial, arm.children, began)
        if not replies:
            self._arms.remove(arm)
            return
        own_s = [reply.own_s for reply in replies if reply.own_s is not None]
        arm.over = bool(own_s)
        arm.own_s = sum(own_s)
        arm.took_s += time.monotonic() - began
        self._stop(arm)

    def _finish(self, arm: _Arm, host: tuple[HostUsage, HostUsage], shared_s: float) -> TrialRecord:
        began = time.monotonic()
        arm.tell((host, arm.took_s + shared_s))
        replies = self._replies(arm.trial, arm.children, began)
        self._arms.remove(arm)
        termination = None
        if replies:
            end(arm.children)
        else:
            _, began, termination = self._ended.pop()
        return record_of(arm.trial.spec, arm.trial.folder, began, termination)

    def _stop(self, arm: _Arm) -> None:
        try:
            arm.wait()
        except PermissionError:
            self._leave(arm, "it has processes that cannot be stopped while others work")

    def _leave(self, arm: _Arm, why: str) -> None:
        arm.end()
        self._arms.remove(arm)
        self.alone.append((arm.trial, why))

    def _replies(self, trial: Trial, children: Sequence[Child], began: float) -> list[Reply]:
        """What the ranks of an arm reply; none where one has failed, and then all are ended."""
        self._at_work.note(trial.folder)
        replies = receive(children, self._timeout_s)
        if isinstance(replies, Termination):
            self._ended.append((trial, began, replies))
            return []
        for reply in replies:
            if reply.outcome is not Outcome.OK:
                end(children)
                failure = reply.failure or Failure(type="NoReason", message="the process gave no reason")
                self._ended.append((trial, began, Termination(reply.outcome, failure)))
                return []
        return replies
