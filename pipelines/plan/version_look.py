"""Ask a version of the code whether it can run the arms of a sweep, in a process that imports no other.

That process runs ``python -m perfsweep.pipelines.plan.version_look`` in the environment of the version, asked
on standard input: with torch, numpy and the standard library alone, of which the former two may not be sound.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.store.planned import typed_config
from perfsweep.pipelines.trial.identity import code_digest, packages, packages_digest
from perfsweep.pipelines.trial.machine.gpus import torch_build
from perfsweep.pipelines.worker_process import Worker, answers, last_line
from perfsweep.workloads import registry, snapshot
from perfsweep.workloads.api import Declaration, Device, Workload
from perfsweep.workloads.errors import ConfigError, PerfsweepError
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
    command = [own.get(INTERPRETER, sys.executable), "-m", "perfsweep.pipelines.plan.version_look"]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("w+b") as log:
        worker, late = Worker(command, {**os.environ, **changed(os.environ, own)}, log), True
        try:
            reply = worker.ask(dataclasses.asdict(question), TIMEOUT_S)
            late = reply is None and not worker.gone
        finally:
            status = worker.end(0.0 if late else END_S)
        said = last_line(log)
    if reply is not None:
        return Answer(**reply)
    if late:
        return Answer(problem=f"importing its code did not end within {TIMEOUT_S:g} s")
    return Answer(problem=f"importing its code ended the process with status {status}: {said}")


def answer(question: Question) -> Answer:
    """Import what every trial needs, and then the workload, and see which arms it can run."""
    for name in ("numpy", "torch"):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the answer
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return Answer(problem=f"{name} cannot be imported: {what}; reinstall it in {sys.prefix}")
    facts = _facts()
    device = _device(question)
    if device.type == "cuda" and torch_build().cuda is None:
        return Answer(problem=f"its torch {torch_build().version} is built without CUDA")
    try:
        cls, config = _workload(question)
        if strangers := list(_strangers()):
            return Answer(
                problem=f"it imports {', '.join(strangers[:3])} from the checkout and not from the version"
            )
    except PerfsweepError as error:
        return Answer(problem=str(error))
    space = Space(cls.toggles_named(question.toggles), config, device)
    levels, problems = {}, {}
    for arm in question.arms:
        try:
            levels[arm["key"]] = _levels(space, cls, arm["choices"], question.starts[arm["key"]])
        except ConfigError as error:
            problems[arm["key"]] = str(error)
    by_exec = any(cls.needs_exec(one) for one in levels.values())
    return Answer(
        code=code_digest(cls),
        config=dataclasses.asdict(config),
        levels=levels,
        problems=problems,
        by_exec=by_exec,
        **facts,
    )


def _facts() -> dict[str, Any]:
    """The environment as trials will find it: before the user's code adds to the path of modules."""
    keys = {"torch": torch_build().version}
    return {"installed": packages_digest(), "packages": packages(), "keys": keys}


def _workload(question: Question) -> tuple[type[Workload], Any]:
    values = dict(question.workload)
    cls = registry.find(str(values.pop("name")))
    config = cls.planned(typed_config(cls, values))
    return cls.configured(config), config


def _device(question: Question) -> Device:
    capability = question.device.get("capability")
    return Device(**{**question.device, "capability": tuple(capability) if capability else None})


def _levels(
    space: Space, cls: type[Workload], choices: dict[str, Any], start: dict[str, Any]
) -> dict[str, Any]:
    """The levels of an arm as this version declares them.

    Raises
    ------
    ConfigError
        It does not have them, or they start processes otherwise than the checkout's, which will start them.
    """
    levels = space.legal(choices)
    if start_of(cls, levels) != start:
        raise ConfigError(
            "its levels set other variables, or take another number of processes, than the checkout's"
        )
    return levels


def _strangers() -> Iterator[str]:
    """Modules that should have come from the version, and have not."""
    kept = snapshot.current()
    if kept is None:
        return
    known = {*kept.copies, *kept.hidden}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve() in known and not snapshot.is_copy(module):
            yield name


def main() -> None:
    """Answer one question."""
    question, stream = sys.stdin.readline(), answers()
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # a user's module that reads would wait for ever
    found = answer(Question(**json.loads(question)))
    print(json.dumps(dataclasses.asdict(found), default=str), file=stream, flush=True)


if __name__ == "__main__":
    main()
