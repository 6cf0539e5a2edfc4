"""Ask a version of the code whether it can run the arms of a sweep, in a process that imports no other."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workloads.api import Workload
from workloads.imports import OURS
from workloads.snapshot import VARIABLE
from workloads.user_environment import changed

TIMEOUT_S = 300.0
"""For everything that a user's module does while it is imported."""

QUESTION, ANSWER = "question.json", "answer.json"


@dataclass(frozen=True)
class Question:
    """What a version is asked.

    Attributes
    ----------
    workload : its name and configuration, as typed
    toggles : names of those that an arm has
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
    """

    problem: str = ""
    code: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    levels: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    by_exec: bool = False


def arm_key(levels: Mapping[str, Any]) -> str:
    """Name an arm within a question."""
    return json.dumps(dict(levels), sort_keys=True)


def start_of(cls: type[Workload], levels: Mapping[str, Any]) -> dict[str, Any]:
    """What must be known of an arm before its processes start, as its workload declares it."""
    chosen = cls.levels_of(levels)
    env = {name: value for level in chosen.values() for name, value in level.env.items()}
    return {"env": env, "ranks": max([cls.ranks, *(level.ranks for level in chosen.values())])}


def ask(question: Question, copies: Path, import_paths: Sequence[str]) -> Answer:
    """Ask the version whose files lie in `copies`; whatever goes wrong there is the answer's problem."""
    folder = copies.with_name(f"{copies.name}.look")
    folder.mkdir()
    (folder / QUESTION).write_text(json.dumps(dataclasses.asdict(question), default=str))
    paths = [str(OURS), *import_paths, os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONSAFEPATH": "1",
        VARIABLE: str(copies),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pipelines.plan.version_process", str(folder)],
            env={**os.environ, **changed(os.environ, own)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(problem=f"importing its code did not end within {TIMEOUT_S:g} s")
    file = folder / ANSWER
    if not file.exists():
        said = " ".join(done.stderr.decode(errors="replace").strip().splitlines()[-1:])
        return Answer(problem=f"importing its code ended the process with status {done.returncode}: {said}")
    return Answer(**json.loads(file.read_text()))
