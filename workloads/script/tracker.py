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
_MENTIONED = re.compile(r"\bwandb\b")


def remark(sources: Sources, levels: Iterable[Level]) -> tuple[str, ...]:
    """What a table says of it: that it was off, where no level is about it."""
    if not sources.mention(_MENTIONED) or any(MODE in level.env for level in levels):
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
    held = [True]
    undo.callback(held.clear)

    def init(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def begun(*args: Any, **kwargs: Any) -> Any:
            if not held:
                return real(*args, **kwargs)
            print(f"W&B runs in the script have {MODE}={mode}", file=sys.stderr)
            return real(*args, **{**kwargs, "mode": mode})

        return begun

    def login(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def logged_in(*args: Any, **kwargs: Any) -> Any:
            return True if held and mode == OFF else real(*args, **kwargs)

        return logged_in

    Replacements({"wandb:init": init, "wandb:login": login}, "").install(undo)
