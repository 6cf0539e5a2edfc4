"""The process in which a version answers; see `perfsweep.pipelines.plan.version_look`.

Run as ``python -m perfsweep.pipelines.plan.version_process <folder>``, in the environment of the version:
what is imported before torch is known to work needs the standard library only.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from pathlib import Path

from perfsweep.pipelines.plan.version_look import ANSWER, QUESTION, Answer, Question


def answer(question: Question) -> Answer:
    """Import what every trial needs, and then the workload."""
    for name in ("numpy", "torch"):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the answer
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return Answer(problem=f"{name} cannot be imported: {what}; install it anew in {sys.prefix}")
    from perfsweep.pipelines.plan import version_reply

    return version_reply.answer(question)


def main(folder: Path) -> None:
    """Answer the question in a folder."""
    question = Question(**json.loads((folder / QUESTION).read_text()))
    text = json.dumps(dataclasses.asdict(answer(question)), default=str)
    (folder / ANSWER).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
