"""The process in which a version of the code answers; see `pipelines.plan.version_look`.

Run as ``python -m pipelines.plan.version_process <folder>``.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipelines.plan.arms import Space
from pipelines.plan.plan import load_workload
from pipelines.plan.version_look import ANSWER, QUESTION, Answer, Question, start_of
from pipelines.trial.identity import code_digest
from workloads import copied_imports, snapshot
from workloads.api import Device, Workload
from workloads.errors import ConfigError, PerfsweepError


def answer(question: Question) -> Answer:
    """Import the workload, and see which arms it can run."""
    try:
        cls, config = load_workload(question.workload)
        if strangers := list(_strangers()):
            return Answer(
                problem=f"it imports {', '.join(strangers[:3])} from the checkout and not from the version"
            )
    except PerfsweepError as error:
        return Answer(problem=str(error))
    space = Space(cls.toggles_named(question.toggles), config, _device(question))
    levels, problems = {}, {}
    for arm in question.arms:
        try:
            levels[arm["key"]] = _levels(space, cls, arm["choices"], question.starts[arm["key"]])
        except ConfigError as error:
            problems[arm["key"]] = str(error)
    by_exec = any(cls.needs_exec(one) for one in levels.values())
    return Answer("", code_digest(cls), dataclasses.asdict(config), levels, problems, by_exec)


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
    assert kept is not None
    known = {*kept.copies, *kept.hidden}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve() in known and not copied_imports.is_copy(module):
            yield name


def main(folder: Path) -> None:
    """Answer the question in a folder."""
    question = Question(**json.loads((folder / QUESTION).read_text()))
    text = json.dumps(dataclasses.asdict(answer(question)), default=str)
    (folder / ANSWER).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
