"""The script's own W&B: in the mode that perfsweep says, whatever the script asks for."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from perfsweep.workloads.declarations import Level
from perfsweep.workloads.script.replaced import Replacements

MODE = "WANDB_MODE"
OFF = "disabled"
SILENCED = "silenced_wandb_runs"
"""Counts runs that the script began and that were off."""


def remarks(levels: Iterable[Level]) -> tuple[tuple[str, str], ...]:
    """What tables say where runs were off, unless a level is about that."""
    if any(MODE in level.env for level in levels):
        return ()
    how = "a toggle {off: {}, on: {env: {WANDB_MODE: offline}}} measures what logging costs"
    return ((SILENCED, f"the script's W&B was off; {how}"),)


def mode_of(levels: Iterable[Level]) -> str:
    """The mode of an arm: off, unless one of its levels sets another."""
    return next((level.env[MODE] for level in levels if MODE in level.env), OFF)


def hold(mode: str, undo: ExitStack, counts: Counter[str]) -> None:
    """Have every run that the script begins in this mode, and no login, until `undo`."""
    held = [True]
    undo.callback(held.clear)

    def init(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def begun(*args: Any, **kwargs: Any) -> Any:
            if not held:
                return real(*args, **kwargs)
            counts[SILENCED] += mode == OFF
            print(f"W&B runs in the script have {MODE}={mode}", file=sys.stderr)
            return real(*args, **{**kwargs, "mode": mode})

        return begun

    def login(real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def logged_in(*args: Any, **kwargs: Any) -> Any:
            return True if held and mode == OFF else real(*args, **kwargs)

        return logged_in

    Replacements({"wandb:init": init, "wandb:login": login}, "").install(undo)
