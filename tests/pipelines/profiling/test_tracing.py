"""Operators of all repetitions of a slice, and when torch's profiler hears that an iteration has ended."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch

from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.profiling.tracing import TABLE, TRACE, Steps, Tracing, added
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost


class Heard:
    """Counts steps as torch's profiler does."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        self.steps += 1


@pytest.mark.parametrize(("total", "ended", "steps"), [(3, 3, 2), (3, 2, 2), (None, 3, 3), (1, 1, 0)])
def test_every_iteration_but_the_last_is_told(total: int | None, ended: int, steps: int) -> None:
    heard = Heard()
    told = Steps(heard, total)  # type: ignore[arg-type]
    for _ in range(ended):
        told()
    assert heard.steps == steps


def test_repetitions_of_an_operator_add_up() -> None:
    one = Cost(name="mm", self_ns=1.0, device_ns=2.0, calls=3.0)
    assert added(None, one) == one
    assert added(one, Cost(name="mm", self_ns=10.0, device_ns=20.0, calls=30.0)) == Cost(
        name="mm", self_ns=11.0, device_ns=22.0, calls=33.0
    )


def test_the_device_decides_which_operator_is_longest_and_the_host_between_equals(tmp_path: Path) -> None:
    tool = Tracing(ProfileConfig(tool="torch"), tmp_path)
    costs = [Cost(name="a", self_ns=9.0), Cost(name="b", device_ns=1.0), Cost(name="c", self_ns=10.0)]
    tool._costs = {cost.name: cost for cost in costs}
    found = tool.finish(Measured(1.0, {}, 1))
    assert [cost.name for cost in found.costs] == ["b", "c", "a"]
    assert dict(found.facts) == {"operators": 3.0}


def test_iterations_of_every_block_are_summed_and_the_files_show_the_first(tmp_path: Path) -> None:
    tool = Tracing(ProfileConfig(tool="torch", warmup=1), tmp_path)
    x = torch.ones(4, 4)
    for products in (1, 2):
        with tool.block(2, 2) as tick:
            for iteration in range(4):
                for _ in range(products if iteration >= 2 else 7):  # what leads to the slice does not count
                    x @ x
                tick()
        size = (tmp_path / TRACE).stat().st_size
    found = {cost.name: cost for cost in tool.finish(Measured(1.0, {}, 4)).costs}
    assert found["aten::mm"].calls == 2 * 1 + 2 * 2
    assert found["aten::mm"].self_ns > 0 and found["aten::mm"].device_ns == 0
    assert "aten::mm" in (tmp_path / TABLE).read_text() and size > 0


@pytest.mark.parametrize("stacks", [False, True])
def test_a_trace_holds_pythons_calls_where_they_are_asked_for(tmp_path: Path, stacks: bool) -> None:
    tool = Tracing(ProfileConfig(tool="torch", stacks=stacks), tmp_path)
    with tool.block(0, 1) as tick:
        torch.ones(4)
        tick()
    with gzip.open(tmp_path / TRACE) as file:
        events = json.load(file)["traceEvents"]
    assert any(event.get("cat") == "python_function" for event in events) is stacks
