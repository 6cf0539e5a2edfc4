"""The process in which a version answers; see `perfsweep.pipelines.plan.version_look`.

Run as ``python -m perfsweep.pipelines.plan.version_process``, in the environment of the version, asked on
standard input: what is imported before torch is known to work needs the standard library only.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import sys
from pathlib import Path

from perfsweep.pipelines.plan.version_look import Answer, Question
from perfsweep.pipelines.worker_process import answers


def answer(question: Question) -> Answer:
    """Import what every trial needs, and then the workload."""
    for name in ("numpy", "torch"):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises is the answer
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return Answer(problem=f"{name} cannot be imported: {what}; reinstall it in {sys.prefix}")
    from perfsweep.pipelines.plan import version_reply

    return version_reply.answer(question)


def main() -> None:
    """Answer one question."""
    question, stream = sys.stdin.readline(), answers()
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)  # a user's module that reads would wait for ever
    found = answer(Question(**json.loads(question)))
    print(json.dumps(dataclasses.asdict(found), default=str), file=stream, flush=True)


if __name__ == "__main__":
    main()
