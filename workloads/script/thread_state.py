"""What torch keeps for each thread and a script may have set where it is interrupted.

Script and trial share a thread. A script that is interrupted inside ``no_grad``, under autocast or on a
default device of its own must not hand that to the trial, and must find it again; nor may a mode that the
trial enters around an iteration end up below one of the script's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import _C
from torch.utils import _python_dispatch as dispatch

_AUTOCAST = ("cpu", "cuda")


class ThreadState:
    """The part of the thread's state that is the script's, put aside while the trial runs."""

    def __init__(self) -> None:
        self._depths = _depths()
        self._undo: list[Callable[[], Any]] = []

    def put_aside(self) -> None:
        """Take what the script has set off the thread."""
        depths = _depths()
        if depths == self._depths and torch.is_grad_enabled() and not _C._is_any_autocast_enabled():
            return  # nearly always, and in every iteration
        self._pop(_C._pop_torch_function_stack, _C._push_on_torch_function_stack, depths[0] - self._depths[0])
        self._pop(dispatch._pop_mode, dispatch._push_mode, depths[1] - self._depths[1])
        if not torch.is_grad_enabled():
            _C._set_grad_enabled(True)
            self._undo.append(partial(_C._set_grad_enabled, False))
        for device in _AUTOCAST:
            if torch.is_autocast_enabled(device):
                torch.set_autocast_enabled(device, False)
                self._undo.append(partial(torch.set_autocast_enabled, device, True))

    def _pop(self, pop: Callable[[], Any], push: Callable[[Any], Any], depth: int) -> None:
        own: list[Any] = [pop() for _ in range(depth)]
        self._undo += [partial(push, mode) for mode in reversed(own)]

    def put_back(self) -> None:
        """Set it again, above whatever the trial has entered meanwhile."""
        self._depths = _depths()
        for set_again in self._undo:
            set_again()
        self._undo.clear()


def _depths() -> tuple[int, int]:
    """Depths of the stacks of function modes and of dispatch modes."""
    return _C._len_torch_function_stack(), _C._len_torch_dispatch_stack()
