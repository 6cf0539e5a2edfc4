"""Which calls of the script make its loaders and optimisers, reset its gradients and call its models."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import cache
from inspect import Parameter, Signature
from itertools import islice
from types import FrameType
from typing import Any

from torch import Tensor, nn

from perfsweep.workloads.script.edits.site import FORWARD, Holder, Line, Site


def by_position(signature: Signature) -> tuple[str, ...]:
    """Names of a method's arguments that may be given by position."""
    plain = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, one in signature.parameters.items() if one.kind in plain)[1:]


class CallSites:
    """Calls that were seen, each place once.

    Parameters
    ----------
    users : files of the user's
    """

    def __init__(self, users: Collection[os.PathLike[str] | str] = ()) -> None:
        self._users = {os.path.realpath(file) for file in users}
        self._real = cache(os.path.realpath)
        self._found: dict[tuple[Any, ...], Site] = {}

    @property
    def found(self) -> tuple[Site, ...]:
        """In the order in which they were seen first."""
        return tuple(self._found.values())

    def note(self, what: str, called: str, caller: FrameType, held: object = None, **facts: Any) -> None:
        """Take note of a call.

        Parameters
        ----------
        caller : the frame that makes it
        held : what names are looked for that it has there, such as the model that is called
        facts : further fields of `Site`
        """
        file, line, end = self._file(caller), caller.f_lineno, _end(caller)
        key = (what, called, file, line, end)
        if key in self._found:
            return
        frames = list(self._frames_of_user(caller))
        lines = tuple(self._line(frame) for frame in frames)
        holders = tuple(self._holders(frames, held)) if held is not None else ()
        self._found[key] = Site(what, called, file, line, end, lines, holders=holders, **facts)

    def _frames_of_user(self, frame: FrameType | None) -> Iterator[FrameType]:
        while frame is not None:
            if self._file(frame) in self._users:
                yield frame
            frame = frame.f_back

    def _file(self, frame: FrameType) -> str:
        name = frame.f_code.co_filename
        return name if name.startswith("<") else self._real(name)

    def _line(self, frame: FrameType) -> Line:
        top = frame.f_code.co_name == "<module>"
        return Line(self._file(frame), 0 if top else frame.f_code.co_firstlineno, frame.f_lineno)

    def _holders(self, frames: list[FrameType], held: object) -> Iterator[Holder]:
        """Names of the user's for a thing: of a function or module, or of an attribute of what has a name."""
        for frame in frames:
            for name, value in list(frame.f_locals.items()):
                if value is held:
                    yield Holder(name, self._line(frame))
                elif name == "self":
                    attributes = [one for one, inner in _attributes(value).items() if inner is held]
                    yield from (Holder(f"self.{one}", self._line(frame)) for one in attributes)


def _attributes(value: object) -> dict[str, object]:
    own = getattr(value, "__dict__", {})
    return {**own, **own.get("_modules", {})}


def _end(frame: FrameType) -> tuple[int, int] | None:
    """Where the call ends that a frame is in, where the code knows its columns."""
    position = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), None)
    if position is None or position[1] is None or position[3] is None:
        return None
    return position[1], position[3]


def note_forward(sites: CallSites, caller: FrameType, module: nn.Module, given: Any, result: Any) -> None:
    """Take note of a call while the module trains: who makes it, and what the module is called there."""
    if not module.training:
        return
    args, kwargs = given
    named = {**dict(enumerate(args)), **kwargs}
    images = tuple(name for name, one in named.items() if isinstance(one, Tensor) and one.dim() == 4)
    about = {"tensor": isinstance(result, Tensor), "images": images}
    device = next(nn.Module.parameters(module)).device.type
    sites.note(FORWARD, type(module).__name__, caller, held=module, device=device, **about)
