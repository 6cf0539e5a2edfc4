"""Commands as a trial has them: configured, set up, and closed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.command.config import CommandConfig
from perfsweep.workloads.command.workload import Command

Make = Callable[..., Command]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Set a command up in an empty folder; `levels` choose the levels of its toggles."""
    made: list[Command] = []

    def set_up(command: str, levels: dict[str, Any] | None = None, seed: int = 0, **fields: Any) -> Command:
        config = Command.planned(CommandConfig(command, folder=str(tmp_path), **fields))
        workload: Any = Command.configured(config)()
        made.append(workload)
        deadline = time.monotonic() + 60
        context = Context(Device(), tmp_path / "scratch", tmp_path, seed=seed, deadline=deadline)
        workload.setup(config, levels or {}, context)
        return workload

    yield set_up
    for one in made:
        one.close()


@pytest.fixture
def ran(make: Make) -> Make:
    """The same, run once."""

    def run(*arguments: Any, **fields: Any) -> Command:
        workload = make(*arguments, **fields)
        workload.step(NullClock())
        return workload

    return run
