"""The script's own W&B: in the mode that perfsweep says, whatever the script asks for."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from perfsweep.workloads.declarations import Level
from perfsweep.workloads.script.replaced import Replacements
from perfsweep.workloads.script.sources import Sources

MODE = "WANDB_MODE"
OFF = "disabled"
_IMPORTED = re.compile(r"^\s*(?:import|from)\s+wandb\b", re.MULTILINE)


def is_used(sources: Sources) -> bool:
    """Whether a script imports it."""
    return sources.mention(_IMPORTED)


def remark(sources: Sources, levels: Iterable[Level]) -> tuple[str, ...]:
    """What a table says of it: that it was off, where no level is about it."""
    if not is_used(sources) or any(MODE in level.env for level in levels):
        return ()
    return (
        "the script's W&B was off; a toggle {off: {}, on: {env: {WANDB_MODE: offline}}} measures what logging"
        " costs",
    )


def mode_of(levels: Iterable[Level]) -> str:
    """The mode of an arm: off, unless one of its levels sets another."""
    return next((level.env[MODE] for level in levels if MODE in level.env), OFF)


def hold(mode: str, undo: ExitStack) -> None:
    """Have every run that the script begins in this mode, and no login, until `undo`."""
    if mode == OFF:
        print(f"wandb is switched off in the script: {MODE}={OFF}", file=sys.stderr)
    held = [True]
    undo.callback(held.clear)

    def init(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def begun(*args: Any, **kwargs: Any) -> Any:
            return real(*args, **({**kwargs, "mode": mode} if held else kwargs))

        return begun

    def login(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def logged_in(*args: Any, **kwargs: Any) -> Any:
            return True if held and mode == OFF else real(*args, **kwargs)

        return logged_in

    Replacements({"wandb:init": init, "wandb:login": login}, "").install(undo)
