"""What an exception says of a trial: its outcome, and for lack of memory what held it."""

from __future__ import annotations

import pickle
import re
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import synchronize
from pathlib import Path
from typing import Any

import torch

from perfsweep.pipelines.store.trial_schema import Failure, Outcome
from perfsweep.workloads.errors import PerfsweepError, UnsupportedHere
from perfsweep.workloads.imports import INSTALLED, is_recorded

_OURS = Path(__file__).parents[2]
_NOT_OF_THE_USER = (*sysconfig.get_paths().values(), str(_OURS), "<")
"""Beginnings of the files that are Python's, installed, ours, or none."""

_WANTS_CUDA = re.compile(
    r"not compiled with CUDA|no NVIDIA (driver|GPU)|No CUDA GPUs|no CUDA-capable device|"
    r"CUDA device but torch.cuda.is_available\(\) is False",
    re.IGNORECASE,
)


def classify(error: Exception) -> tuple[Outcome, Failure]:
    """The outcome that an exception is, and why."""
    if isinstance(error, UnsupportedHere):
        return Outcome.UNSUPPORTED, Failure(type="UnsupportedHere", message=str(error))
    failure = as_failure(error)
    if _WANTS_CUDA.search(failure.message) and not torch.cuda.is_available():
        message = f"needs CUDA, which this machine has not ({failure.where})"
        return Outcome.UNSUPPORTED, replace(failure, type="UnsupportedHere", message=message)
    return Outcome.OOM if is_oom(error) else Outcome.FAILED, failure


def as_failure(error: BaseException) -> Failure:
    """An exception as data."""
    text = "".join(traceback.format_exception(error))
    message, where = _COLOUR.sub("", str(error)), _place(error)
    if found := _OF_A_WORKER.match(message):
        worker, frames, message = found.groups()
        message = f"{message.partition(': ')[2].strip() or message} (in {worker})"
        own = [one for one in _FRAME.finditer(frames) if not _is_installed(one[1])]
        where = "{}:{}, in {}: {}".format(*own[-1].groups()) if own else where
    if "shared memory" in message and "No space left" in message:
        message += ". Enlarge /dev/shm, in a container by --shm-size, or choose num_workers=0"
    passed = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if isinstance(error, OSError) and synchronize.__file__ in passed:
        message += ". Processes share semaphores in /dev/shm: let it be written, or choose num_workers=0"
    return Failure(type=type(error).__name__, message=message, where=where, traceback=text)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Codes of a terminal: some exceptions of torch carry them."""

_OF_A_WORKER = re.compile(r"Caught \w+ in ([^\n]+)\.\nOriginal (Traceback[\s\S]*\n [^\n]*)\n(\S[\s\S]*)")
"""What torch raises in the place of an exception of a loader's worker: its traceback is the message."""

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)\n\s+(.+)')


def _place(error: BaseException) -> str:
    """The innermost line of the user's files, in an error or its cause; else of our workloads, else any.

    A sentence of ours needs no line of ours.
    """
    frames = traceback.extract_tb(error.__traceback__)
    users = next((found for one in _causes(error) if (found := _of_the_user(one))), None)
    if not users and isinstance(error, PerfsweepError):
        return ""
    own = users or [frame for frame in frames if frame.filename.startswith(str(_OURS / "workloads"))]
    return next(
        (f"{one.filename}:{one.lineno}, in {one.name}: {one.line}" for one in (own or frames)[::-1]), ""
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, then the exceptions that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


def _of_the_user(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if not _is_installed(frame.filename)]


def _is_installed(file: str) -> bool:
    path = Path(file)
    known = file.startswith(_NOT_OF_THE_USER) or not INSTALLED.isdisjoint(path.parts)
    return known or any(map(is_recorded, (path, *path.parents)))


ON_OOM = "oom_snapshot.pickle"


def is_oom(error: BaseException) -> bool:
    """Whether an exception says that memory ran out; CPU allocators raise a plain RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def keep_on_oom(folder: Path, allocator: Any = None) -> Path | None:
    """Write what the allocator holds after OOM; None without an allocator, or if nothing could be written.

    The file is for https://pytorch.org/memory_viz. With the history of allocations, which only profile trials
    record, each block knows the code that asked for it; without, sizes and segments are known only.

    Only ever called when a trial has failed: whatever goes wrong here must not hide why.
    """
    if allocator is None:  # CUDA's, where this process has used CUDA: asking must not initialise a device
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return None
        allocator = torch.cuda.memory
    file = folder / ON_OOM
    try:
        file.write_bytes(pickle.dumps(allocator._snapshot()))
    except (OSError, RuntimeError, MemoryError, pickle.PicklingError) as error:
        print(f"no memory snapshot: {error}", flush=True)  # into the trial's log
        return None
    return file
