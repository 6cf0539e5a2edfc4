"""The process in which a version answers what it can run; see `perfsweep.pipelines.plan.version_look`.

Run as ``python -m perfsweep.pipelines.plan.version_process``, in the environment of the version, asked on
standard input: with torch, numpy and the standard library alone, of which the former two may not be sound.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.version_look import Answer, Question, start_of
from perfsweep.pipelines.store.planned import typed_config
from perfsweep.pipelines.trial.identity import code_digest, packages, packages_digest
from perfsweep.pipelines.trial.machine.gpus import torch_build
from perfsweep.pipelines.worker_process import answers
from perfsweep.workloads import registry, snapshot
from perfsweep.workloads.api import Device, Workload
from perfsweep.workloads.errors import ConfigError, PerfsweepError


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
