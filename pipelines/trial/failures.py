"""What an exception of a trial is: an outcome, and data."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from perfsweep.pipelines.store.trial_schema import Failure, Outcome
from perfsweep.pipelines.trial.memory_snapshot import is_oom
from perfsweep.workloads.errors import UnsupportedHere


def classify(error: Exception) -> tuple[Outcome, Failure]:
    """The outcome that an exception is, and why."""
    if isinstance(error, UnsupportedHere):
        return Outcome.UNSUPPORTED, Failure(type="UnsupportedHere", message=str(error))
    return Outcome.OOM if is_oom(error) else Outcome.FAILED, as_failure(error)


def as_failure(error: BaseException) -> Failure:
    """An exception as data."""
    text = "".join(traceback.format_exception(error))
    return Failure(type=type(error).__name__, message=str(error), where=_place(error), traceback=text)


def _place(error: BaseException) -> str:
    """The innermost line that is neither ours nor a library's; of an error inside those the innermost."""
    frames = traceback.extract_tb(error.__traceback__)
    libraries = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]))
    own = [frame for frame in frames if not frame.filename.startswith((*libraries, "<"))] or frames
    return next((f"{one.filename}:{one.lineno}, in {one.name}: {one.line}" for one in own[::-1]), "")
