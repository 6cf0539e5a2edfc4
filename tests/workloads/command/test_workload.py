"""A command between its runs: without any limit, among its units, and once it is closed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.command.config import CommandConfig
from perfsweep.workloads.command.tree_memory import descendants
from perfsweep.workloads.command.workload import Command, digest

Make = Callable[..., Command]


def test_nothing_of_it_is_left_once_it_is_closed(make: Make) -> None:
    before = set(descendants(os.getpid()))
    workload = make("true", prepare="true")
    assert len(set(descendants(os.getpid())) - before) == 2
    workload.close()
    assert set(descendants(os.getpid())) <= before


def test_where_nobody_sets_a_limit_a_run_takes_as_long_as_it_takes(tmp_path: Path) -> None:
    config = Command.planned(CommandConfig("true", folder=str(tmp_path)))
    workload: Any = Command.configured(config)()
    workload.setup(config, {}, Context(Device(), tmp_path / "scratch", tmp_path))
    workload.step(NullClock())
    workload.close()
    assert workload.done()


@pytest.mark.parametrize(
    ("units", "unit", "done"), [("1", "run", 1), ("12.5", "unit", 12.5), ("rows", "rows", 7)]
)
def test_a_run_is_worth_its_units(ran: Make, units: str, unit: str, done: float) -> None:
    workload = ran("echo rows=7", units=units, evidence={"pattern": r"rows=(?P<rows>\d+)"})
    assert (workload.unit, workload.progress()) == (unit, done)


def test_data_are_told_apart_by_their_content_and_order(tmp_path: Path) -> None:
    one, other, same = (tmp_path / name for name in ("one", "other", "same"))
    for file, text in ((one, "ab"), (other, "c"), (same, "ab")):
        file.write_text(text)
    assert digest([one]) == digest([same]) and len(digest([one])) == 64
    assert len({digest([one]), digest([one, other]), digest([other, one]), digest([])}) == 4
    one.write_text("a")
    other.write_text("bc")
    assert digest([one, other]) != digest([same, other])
