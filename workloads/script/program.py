"""A script that runs to its next mark, and waits there until it is told to go on.

It runs in the trial's own thread, as a greenlet: its signal handlers work, the trial's dispatch modes see
what it calls, and a round trip costs less than a microsecond.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from greenlet import getcurrent, greenlet
from torch import _C
from torch.utils import _python_dispatch as dispatch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.replaced import put
from perfsweep.workloads.training.precision import keep_precisions

STOP_WITHIN_S = 8.0
"""A script that is told to end and does not is abandoned after this time."""


class Stopped(BaseException):
    """Ends a script at its mark; not an Exception, so that the script's own handlers let it pass."""


class Ended(Exception):
    """The script came to its end."""


class Program:
    """A script as the module ``__main__`` of this process.

    Parameters
    ----------
    file : as `__file__` names it, wherever its code was read
    arguments : after the script's name
    folder : current folder of the script
    module : its dotted name, where it starts as ``python -m`` does
    last_words : gives the last lines that it wrote to stderr
    """

    def __init__(
        self,
        file: Path,
        arguments: Sequence[str],
        folder: Path,
        last_words: Callable[[], str] = lambda: "",
        module: str = "",
    ) -> None:
        self.file, self.last_words, self._module = file, last_words, module
        self._arguments, self._folder = list(arguments), folder
        self._undo = ExitStack()
        self._script = greenlet(self._run)
        self._code: CodeType | None = None
        self._state = ThreadState()
        self._process = os.getpid()
        self._stopping = False

    def start(self, code: CodeType, environment: Mapping[str, str]) -> types.ModuleType:
        """Make the process the script's: arguments, current folder, path of modules, variables.

        Returns its module, which is empty until `advance`.
        """
        self._code = code
        module = types.ModuleType("__main__")
        vars(module).update({"__file__": str(self.file), "__builtins__": __builtins__, "__cached__": None})
        if self._module:
            whole = f"{self._module}.__main__" if self.file.stem == "__main__" else self._module
            module.__package__, module.__spec__ = whole.rpartition(".")[0], ModuleSpec(whole, None)
        self._set(sys.modules, "__main__", module)
        for name, value in (("argv", [str(self.file), *self._arguments]), ("path", self._module_path())):
            put(self._undo, sys, name, value)
        self._undo.callback(gc.enable if gc.isenabled() else gc.disable)
        self._undo.callback(_set_variables, dict(os.environ))
        self._undo.callback(torch.set_default_dtype, torch.get_default_dtype())
        self._undo.callback(setattr, torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)
        keep_precisions(self._undo)
        self._undo.callback(os.chdir, Path.cwd())
        os.chdir(self._folder)
        for name, text in environment.items():
            self._set(os.environ, name, text)
        return module

    def advance(self) -> None:
        """Run to the next mark.

        Raises
        ------
        Ended
            The script has come to its end.
        ConfigError
            It ended the process itself; the message has its last words.
        Exception
            Whatever the script raised.
        """
        self._script.parent = getcurrent()
        self._state.put_back()
        try:
            self._script.switch()
        except SystemExit as end:
            raise ConfigError(_ended_itself(self.file, end.code, self.last_words())) from end
        if self._script.dead:
            raise Ended

    def mark(self) -> None:
        """Hand control to the trial; called from inside the script, in its own thread."""
        if getcurrent() is not self._script or os.getpid() != self._process:
            return  # a thread, a greenlet, or a process of the script's own
        if self._stopping:
            raise Stopped
        self._state.put_aside()
        parent = self._script.parent
        assert parent is not None
        parent.switch()

    def stop(self) -> None:
        """End the script where it is, so that its own endings run, and give the process back."""
        self._stopping = True
        if self._script and not self._script.dead:
            self._script.parent = getcurrent()
            self._state.put_back()
            with alarm(STOP_WITHIN_S, self._leave):
                try:
                    self._script.throw(Stopped())
                except (SystemExit, Exception) as error:  # noqa: BLE001 - the figures are there; its end is told
                    print(f"{self.file.name} ended with {type(error).__name__}: {error}", file=sys.stderr)
        self._undo.close()

    def _leave(self) -> None:
        """Leave a script that does not end where it is; the end of the process ends it."""
        print(f"{self.file.name} did not end when it was told to", file=sys.stderr, flush=True)
        parent = self._script.parent
        if getcurrent() is self._script and parent is not None:
            self._state.put_aside()
            parent.switch()

    def _run(self) -> None:
        assert self._code is not None
        try:
            exec(self._code, vars(sys.modules["__main__"]))
        except Stopped:
            return
        finally:
            if os.getpid() != self._process:
                _end_fork()

    def _module_path(self) -> list[str]:
        """The path with the script's own folder first, of a module the current one, as Python has it."""
        here = str(self._folder if self._module else self.file.parent)
        return [here, *(place for place in sys.path if place not in ("", here))]

    def _set(self, mapping: Any, name: str, value: Any) -> None:
        self._undo.callback(_restore, mapping, name, mapping.get(name))
        mapping[name] = value


def _set_variables(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def _restore(mapping: Any, name: str, before: Any) -> None:
    if before is None:
        mapping.pop(name, None)
    else:
        mapping[name] = before


def _ended_itself(file: Path, status: object, last_words: str) -> str:
    words = status if isinstance(status, str) else last_words
    said = f": {words}" if words else ""
    return (
        f"{file} ended itself, with status {1 if isinstance(status, str) else status or 0}, before its"
        f" iterations were measured{said}"
    )


def _end_fork() -> None:
    """End a process that the script forked and that came to the script's end: the trial is its parent's."""
    error = sys.exc_info()[1]
    status = status_of(error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def status_of(error: BaseException | None) -> int:
    """The status with which Python ends a program, having printed what it prints of its end."""
    if error is None or (isinstance(error, SystemExit) and error.code is None):
        return 0
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code & 0xFF
    if isinstance(error, SystemExit):
        print(error.code, file=sys.stderr)
    else:
        traceback.print_exception(error)
    return 1


def alarm(seconds: float, then: Callable[[], None]) -> ExitStack:
    """Call `then` in the main thread once a block has taken so long."""
    stack = ExitStack()

    def ring(number: int, frame: FrameType | None) -> None:
        then()

    before = signal.signal(signal.SIGALRM, ring)
    stack.callback(signal.signal, signal.SIGALRM, before)
    stack.callback(signal.setitimer, signal.ITIMER_REAL, 0.0)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    return stack


_AUTOCAST = ("cpu", "cuda")


class ThreadState:
    """What torch keeps for each thread and the script has set where it is interrupted, put aside meanwhile.

    Script and trial share a thread. A script that is interrupted inside ``no_grad``, under autocast or on a
    default device of its own must not hand that to the trial, and must find it again; nor may a mode that
    the trial enters around an iteration end up below one of the script's.
    """

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
