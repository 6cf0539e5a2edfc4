"""Where a step makes the host wait: values read that the same iteration has computed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_READS = frozenset(
    (
        "item",
        "tolist",
        "numpy",
        "cpu",
        "nonzero",
        "__float__",
        "__int__",
        "__bool__",
        "__index__",
        "__array__",
        "__format__",
    )
)
_WORDS = {
    "__float__": "float(...)",
    "__int__": "int(...)",
    "__bool__": "a condition on a tensor",
    "__array__": "numpy.asarray(...)",
    "__index__": "an index",
    "__format__": "formatting a tensor",
}
_ALIASES = frozenset(("detach", "__get__"))
"""What gives an old tensor another name; everything else that returns a tensor has computed something."""

_TORCH = Path(torch.__file__).parent
_THROUGH = frozenset(str(_TORCH / name) for name in ("overrides.py", "_tensor.py"))
"""Torch's own code between a tensor's method and whoever called it."""


@dataclass(frozen=True, order=True)
class Read:
    """One line that reads a value: `call` as a person would have written it."""

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
        if name not in _ALIASES:
            seen.fresh.update(map(_storage, _tensors(result)))
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


def _tensors(result: Any) -> Iterable[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list)):
        for one in result:
            yield from _tensors(one)


def _read(name: str, frame: FrameType | None) -> list[Read]:
    """Who asked; nobody if it was torch itself."""
    while frame is not None and frame.f_code.co_filename in _THROUGH:
        frame = frame.f_back
    if frame is None or Path(frame.f_code.co_filename).is_relative_to(_TORCH):
        return []
    return [Read(frame.f_code.co_filename, frame.f_lineno, _WORDS.get(name, f".{name}()"))]
