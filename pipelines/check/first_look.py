"""A first look at a program that is measured from mark to mark: what its iterations are, and if it repeats.

It is run twice for a few iterations, each time in a process of its own with another hash seed. Where the two
runs differ, a third run uses the first seed again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.check import ANSWER
from perfsweep.pipelines.execution.spawn import Exec, Termination, fix_imports, wait
from perfsweep.pipelines.parity import deviations
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Failure, Kind, Manifest, read_evidence, read_status, write_spec
from perfsweep.pipelines.trial import layout
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Declaration, Evidence, Parity

HASH_SEEDS = ("0", "1", "0")
"""Of the processes in their order: evidence trials have the first, the draws of a sweep any other."""


IMPORTS_S = 60.0
"""For what a process imports before the script begins."""


@dataclass(frozen=True)
class Seen:
    """What one process showed; see `perfsweep.pipelines.check.look_process`."""

    answer: Mapping[str, Any]
    evidence: Evidence

    def __getitem__(self, name: str) -> Any:
        return self.answer[name]


HELD = "PYTHONHASHSEED=0"
"""Holds the order of hashed things."""


@dataclass(frozen=True)
class Parting:
    """Where two runs came apart.

    `iteration` counts from 1; None where losses agree and only the parameters do not. `cause` is a sentence.
    `held` is the variable with which they agree, as a shell has it; "" where none is known.
    """

    iteration: int | None
    cause: str
    held: str = ""


class NotMeasurable(Exception):
    """Why a program cannot be measured, with the log of the process that showed it."""

    def __init__(self, failure: Failure, log: Path) -> None:
        super().__init__(failure.message)
        self.failure, self.log = failure, log


class FirstLook:
    """Looks at the naive arm of a workload; what it wrote stays where a log says why it cannot be measured.

    Attributes
    ----------
    doing : what is being done, to show progress
    """

    def __init__(self, manifest: Manifest, cls: type[Declaration]) -> None:
        self.doing = "starting"
        self._manifest, self._cls, self._begun = manifest, cls, time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="perfsweep-look-"))
        self._current = self._folder

    def __rich__(self) -> str:
        stage = read_status(self._current)
        told = f"{self.doing}: {stage}" if stage else self.doing
        return f"{told}, {time.monotonic() - self._begun:.0f} s"

    def __enter__(self) -> FirstLook:
        return self

    def __exit__(self, kind: type[BaseException] | None, *about: object) -> None:
        if kind is not NotMeasurable:
            shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, tell: Callable[[str], None]) -> tuple[Seen, Parting | None]:
        """Run the program; what was seen, and where two runs part if they do.

        Raises
        ------
        NotMeasurable
            It cannot be run to the end of the look.
        """
        first = self._seen(0, "running it", tell)
        second = self._seen(1, "running it again, to see if it repeats", tell)
        if self._same(first, second):
            return first, None
        third = self._seen(2, "it did not repeat; once more, to see why", tell)
        losses = [np.asarray(one.evidence.tensors["losses"]) for one in (first, second)]
        apart = np.flatnonzero(losses[0] != losses[1])
        held = HELD if self._same(first, third) else ""  # the third run hashes as the first does
        cause = self._cause(first, third, held)
        return first, Parting(int(apart[0]) + 1 if len(apart) else None, cause, held)

    def _seen(self, number: int, doing: str, tell: Callable[[str], None]) -> Seen:
        self.doing = doing
        tell(doing)
        self._current = folder = self._folder / str(number)
        ending = self._ran(folder, number)
        answer = _answer(folder, ending)
        if failure := answer.get("failure"):
            raise NotMeasurable(Failure(**failure), folder / "log.txt")
        return Seen(answer, read_evidence(folder))

    def _ran(self, folder: Path, number: int) -> Termination | None:
        sweep, arm = self._manifest.sweep, self._manifest.arms[0]
        fix_imports(sweep.import_paths)
        world = self._cls.processes(arm.levels, environment.device_facts())
        cache = self._folder / "cache"
        spec = sweep.trial_spec(arm, Kind.EVIDENCE, "look", cache, world=world, attempt=number)
        drawn = layout.environment(sweep.measure.allocator, None) | layout.hashing(HASH_SEEDS[number])
        levels = self._cls.levels_of(arm.levels).values()
        env = {name: value for level in levels for name, value in level.env.items()}
        starter = Exec("perfsweep.pipelines.check.look_process", drawn)
        # A script is given up before its process is, and says then what it has not done.
        patience_s = 1.2 * sweep.measure.timeout_s + IMPORTS_S
        return wait(starter.start(write_spec(folder, spec), world, env), patience_s)

    def _same(self, one: Seen, other: Seen) -> bool:
        result = deviations.judge(one.evidence, other.evidence, self._cls.checks, Parity.EXACT, {})
        fine = (ParityVerdict.IDENTICAL, ParityVerdict.WITHIN_TOLERANCE)
        return result.verdict in fine

    def _cause(self, first: Seen, third: Seen, held: str) -> str:
        if held:
            return (
                "The cause is the order of hashed things, such as a loop over a set of words: sort it, or"
                f" hold it with {held} before this command and the next"
            )
        suspects = first["sight"]["unseeded"]
        where = f"; without a seed: {'; '.join(suspects[:3])}" if suspects else ""
        if first["data"] != third["data"]:
            return f"The cause is data that is drawn or shuffled by a generator without a seed{where}"
        usual = "a generator without a seed, several threads that add in any order, or kernels that do"
        return f"The data is the same; usual causes are {usual}{where}"


def _answer(folder: Path, ending: Termination | None) -> dict[str, Any]:
    try:
        return json.loads((folder / ANSWER).read_text())
    except OSError:
        failure = ending.failure if ending else Failure(type="NoAnswer", message="its process ended early")
        return {"failure": asdict(failure)}


def planned(command: plan.SweepCommand) -> tuple[Manifest, type[Declaration]]:
    """The naive arm of a workload, to be looked at.

    Raises
    ------
    ConfigError
        The workload cannot be used as it is configured.
    """
    manifest = plan.single_arm(command, environment.device_facts())
    return manifest, plan.load_workload(command.workload)[0]
