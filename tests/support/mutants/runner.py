"""Runs pytest again and again, each time in a fork of one process that has imported what is dear.

A script of its own, started in a copy of the project: it imports nothing of it, so that every fork reads the
sources as they stand then. Asked by lines of JSON on its standard input, it answers by such lines.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

DEAR = (
    "torch",
    "pytest",
    "xdist.plugin",
    "hypothesis.strategies",
    "_hypothesis_pytestplugin",
    "scipy.stats",
    "sklearn.datasets",
    "polars",
    "hydra",
    "wandb",
    "plotly.graph_objects",
    "rich.console",
    "jinja2",
    "pydantic",
)
LOOK_EVERY_S = 0.5


class Watch:
    """A pytest plugin: which test is running, and which was the first to fail.

    Args:
        answer: File that says so; its time of change is when the test began.
    """

    def __init__(self, answer: Path) -> None:
        self.answer = answer

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.answer.write_text(nodeid)

    def pytest_exception_interact(self, node) -> None:
        """A failure in a test or in collecting it: with -x it is the last."""
        self.answer.write_text(node.nodeid)


def main() -> None:
    """Imports what is dear, then runs what is asked for until standard input ends."""
    for name in DEAR:
        with contextlib.suppress(ImportError), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)


def run(words: list[str], answer: str, patience_s: float) -> dict:
    """Pytest with these words in a fork.

    Args:
        words: Its command line.
        answer: File that the fork keeps the name of its test in; its output goes to the same name with .log.
        patience_s: How long one test may take.

    Returns:
        `status`: exit status, negative for a signal, None past the patience; `test`: the one that failed, or
        ran last.
    """
    Path(answer).write_text("")
    child = os.fork()
    if child == 0:
        tested(words, Path(answer))
    status = waited(child, Path(answer), patience_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests may have left running
    return {"status": status, "test": Path(answer).read_text()}


def tested(words: list[str], answer: Path) -> None:
    """The fork: a session of its own, whose output is a file. Does not return."""
    status = 70
    try:
        os.setsid()
        log = os.open(answer.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        sys.argv = ["pytest", *words]
        import pytest

        status = int(pytest.main(words, plugins=[Watch(answer)]))
    except BaseException:  # noqa: BLE001 - the fork must not go on as the one that serves
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def waited(child: int, answer: Path, patience_s: float) -> int | None:
    """Exit status of the fork; None if a test of it took longer than `patience_s` and it was ended."""
    handle = os.pidfd_open(child)
    late = False
    try:
        while not late and not select.select([handle], [], [], LOOK_EVERY_S)[0]:
            late = time.time() - answer.stat().st_mtime > patience_s
        if late:
            os.killpg(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)
    return None if late else status


if __name__ == "__main__":
    main()
