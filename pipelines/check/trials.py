"""The trials of a check, and which lines of code read from the device."""

from __future__ import annotations

import dataclasses
import gc
import json
import multiprocessing
import os
import re
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from perfsweep.pipelines.check.rules import difference
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.records import Outcome, TrialRecord, TrialSpec, read_evidence, read_spec
from perfsweep.pipelines.trial.counters import tensors_in
from perfsweep.pipelines.trial.parent import detach
from perfsweep.pipelines.trial.process import run
from perfsweep.pipelines.trial.scene import set_up
from perfsweep.workloads.api import NullClock, Workload
from perfsweep.workloads.training.precision import fp32_precisions

ELSEWHERE = "a second set-up in the same process ends elsewhere"

WATCHED = 3
"""Iterations in which a line must read to be reported."""


def forked(spec_file: str, answer_file: str) -> None:
    """First function of a forked process: look, and write down what comes out."""
    detach(Path(spec_file).with_name("log.txt"))
    spec, answer = read_spec(Path(spec_file)), Path(answer_file)
    answer.write_text(
        json.dumps({"leaks": leaks(spec, answer.parent), "reads": reads(spec, answer.parent / "watched")})
    )


def leaks(spec: TrialSpec, folder: Path) -> list[str]:
    """What a first life in the process changes for a second one, as phrases."""
    before = settings()
    # A cache for each life: what is left there is another matter, and told as such.
    specs = {"first": spec, "second": dataclasses.replace(spec, cache_dir=str(folder / "second" / "cache"))}
    records = [run(own, _made(folder / life)) for life, own in specs.items()]
    if reason := _failed(records):
        return [reason]
    found = [
        f"{name} was {was} before set-up and is {now} after close()"
        for name, was, now in _changed(before, settings())
    ]
    checks = declared_workload(spec.workload, spec.config)[0].checks
    first, second = (read_evidence(folder / life) for life in ("first", "second"))
    if (where := difference(first, second, checks)) is not None:
        found.append(f"{ELSEWHERE}: {where}")
    return found + _restarts(spec, _made(folder / "again"))


def _failed(records: list[TrialRecord]) -> str | None:
    """A second life that breaks where the first did not; a first that breaks is told elsewhere."""
    bad = next((record for record in records if record.outcome is not Outcome.OK), None)
    if bad is None or bad is records[0]:
        return None
    why = bad.failure.message if bad.failure else bad.outcome.value
    return f"a second set-up in the same process fails: {why}"


def _restarts(spec: TrialSpec, folder: Path) -> list[str]:
    """Whether `reset` starts a job from where the first one started."""
    with set_up(spec, folder, 0) as scene:
        workload = scene.workload
        if workload.shape != "job":
            return []
        found = []
        workload.prepare_evidence()
        for _ in range(2):
            while not workload.done():
                workload.step(NullClock())
            found.append(workload.evidence())
            workload.reset()
    where = difference(found[0], found[1], type(workload).checks)
    return (
        []
        if where is None
        else [f"reset() does not start from the same state, the second job ends elsewhere: {where}"]
    )


def reads(spec: TrialSpec, folder: Path) -> list[str]:
    """Lines that read what the same iteration computed, in each of some iterations."""
    with set_up(spec, _made(folder), 0) as scene:
        workload = scene.workload
        _step(workload, 2)  # the first iterations build what is built lazily
        watch = ReadWatch()
        with watch:
            for number in range(WATCHED):
                if number:
                    watch.next_iteration()
                _step(workload, 1)
    return [str(read) for read in watch.always()]


def _step(workload: Workload, iterations: int) -> None:
    for _ in range(iterations):
        if workload.done():
            workload.reset()
        workload.step(NullClock())


def settings() -> dict[str, Any]:
    """Settings of a process that a workload may change, and must restore."""
    return {
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch's fp32_precision": ", ".join(f"{name} {kind}" for name, kind in fp32_precisions().items()),
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "gc.isenabled()": gc.isenabled(),
        "the current folder": str(Path.cwd()),
        "the number of child processes": len(multiprocessing.active_children()),
        "the number of threads": threading.active_count(),
        **{f"the variable {name}": value for name, value in os.environ.items()},
    }


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    # Those are caches of ours.
    names = [name for name in {**before, **after} if not name.startswith("the variable TORCH")]
    return [
        (name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    ]


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


_WORDS = {
    "__float__": "float(...)",
    "__int__": "int(...)",
    "__bool__": "a condition on a tensor",
    "__array__": "numpy.asarray(...)",
    "__index__": "an index",
    "__format__": "formatting a tensor",
}
_READS = frozenset({*_WORDS, "item", "tolist", "numpy", "cpu", "nonzero"})
_IN_PLACE = re.compile(r"__i|__setitem__|.*[^_]_$")
"""What computes into a tensor that is there; all else that returns one in the same memory is a view of it."""

_TORCH = Path(torch.__file__).parent
_THROUGH = frozenset(str(_TORCH / name) for name in ("overrides.py", "_tensor.py"))
"""Torch's own code between a tensor's method and its caller."""


@dataclass(frozen=True, order=True)
class Read:
    """One line that reads a value: `call` as a user would have written it."""

    file: str
    line: int
    call: str

    def __str__(self) -> str:
        return f"{self.call} in {self.file}:{self.line}"


@dataclass
class _Seen:
    fresh: set[int] = field(default_factory=set)
    reads: set[Read] = field(default_factory=set)


class ReadWatch(TorchFunctionMode):
    """Notes, for each iteration, the lines that read what this iteration computed.

    A value of an earlier iteration has arrived by itself, and reading it late is the remedy, not the defect.
    What torch reads by itself (an optimiser's step count) is torch's affair. On a CPU nothing waits, but the
    same line would on a GPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self._iterations = [_Seen()]

    def next_iteration(self) -> None:
        """Begin another iteration."""
        self._iterations.append(_Seen())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = self._iterations[-1]
        name = getattr(func, "__name__", "")
        if name in _READS and args and isinstance(args[0], torch.Tensor) and _storage(args[0]) in seen.fresh:
            seen.reads.update(_read(name, sys._getframe(1)))
        result = func(*args, **(kwargs or {}))
        viewed = set() if _IN_PLACE.match(name) else set(map(_storage, tensors_in(args)))
        seen.fresh.update(set(map(_storage, tensors_in([result]))) - viewed)
        return result

    def always(self) -> list[Read]:
        """Reads that happened in every iteration; periodic work may wait."""
        each = [seen.reads for seen in self._iterations]
        return sorted(set.intersection(*each)) if each else []


def _storage(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # sparse and wrapped tensors have none of their own
        return 0


def _read(name: str, frame: FrameType | None) -> list[Read]:
    """Who asked; empty if it was torch itself."""
    while frame is not None and frame.f_code.co_filename in _THROUGH:
        frame = frame.f_back
    if frame is None or Path(frame.f_code.co_filename).is_relative_to(_TORCH):
        return []
    return [Read(frame.f_code.co_filename, frame.f_lineno, _WORDS.get(name, f".{name}()"))]
