"""Ask a version of the code whether it can run the arms of a sweep, in a process that imports no other."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.pipelines.worker_process import Worker, last_line
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.imports import OURS
from perfsweep.workloads.user_environment import INTERPRETER, changed

TIMEOUT_S = 300.0
"""For everything that a user's module does while it is imported."""

END_S = 10.0
"""For its end, once it has answered."""


@dataclass(frozen=True)
class Question:
    """What a version is asked.

    Attributes
    ----------
    workload : its name and configuration, as typed
    toggles : names of the toggles that an arm has
    arms : of each its key, and its levels off the baseline
    starts : how trials of each arm will be started, by its key; see `start_of`
    """

    workload: dict[str, Any]
    toggles: list[str]
    device: dict[str, Any]
    arms: list[dict[str, Any]]
    starts: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a version says.

    Attributes
    ----------
    problem : why it can run nothing; empty where it can
    code, config : digest of the workload's code, and its whole configuration
    levels : of each arm that it can run, by the arm's key
    problems : why it cannot run an arm, by the arm's key
    by_exec : whether its trials must not be forked
    installed, packages : digest of what is installed there, and the version of each package
    keys : comparison keys of its trials that are no facts of the machine
    """

    problem: str = ""
    code: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    by_exec: bool = False
    installed: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


def arm_key(levels: Mapping[str, Any]) -> str:
    """Name an arm within a question."""
    return json.dumps(dict(levels), sort_keys=True)


def start_of(cls: type[Declaration], levels: Mapping[str, Any]) -> dict[str, Any]:
    """What must be known of an arm before its processes start, as its workload declares it."""
    chosen = cls.levels_of(levels)
    env = {name: value for level in chosen.values() for name, value in level.env.items()}
    return {"env": env, "ranks": max([cls.ranks, *(level.ranks for level in chosen.values())])}


def python_path() -> list[str]:
    """List the folders that a user has processes import from."""
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def ask(
    question: Question, folder: Path, variables: Mapping[str, str], import_paths: Sequence[str]
) -> Answer:
    """Ask a version; whatever goes wrong there is the answer's problem.

    Parameters
    ----------
    folder : for the log of what is printed there
    variables : by which the process finds the version's code, and starts in its environment
    import_paths : folders that the workload is imported from
    """
    paths = [str(OURS), *import_paths, *python_path()]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", **variables}
    command = [own.get(INTERPRETER, sys.executable), "-m", "perfsweep.pipelines.plan.version_process"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w+b") as log:
        worker, late = Worker(command, {**os.environ, **changed(os.environ, own)}, log), True
        try:
            answer = worker.ask(dataclasses.asdict(question), TIMEOUT_S)
            late = answer is None and not worker.gone
        finally:
            status = worker.end(0.0 if late else END_S)
        said = last_line(log)
    if answer is not None:
        return Answer(**answer)
    if late:
        return Answer(problem=f"importing its code did not end within {TIMEOUT_S:g} s")
    return Answer(problem=f"importing its code ended the process with status {status}: {said}")
