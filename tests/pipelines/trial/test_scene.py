"""What a timed region's record says of its conditions: what others had of its core, and what disturbed it."""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from planned_sweeps import spec
from toys.odd import Compiled

from perfsweep.pipelines.store.records import Arm, Failure, Kind
from perfsweep.pipelines.trial import scene
from perfsweep.pipelines.trial.identity import code_digest
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.usage import Usage
from perfsweep.pipelines.trial.scene import Scene
from perfsweep.pipelines.trial.step_logging import BufferedLog
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ContractError, UnsupportedHere

WALL_NS = 1_000_000_000
CROWDED = Usage(WALL_NS // 2, own_delay_ns=WALL_NS // 2, minor_faults=3, major_faults=1, system_ns=5)
Recorded = Callable[..., dict[str, Any]]


@pytest.fixture
def recorded() -> Recorded:
    """The fields of a timing trial's record whose region used the processor as told."""

    def run(
        usage: Usage, threads: int = 1, device: Device | None = None, children: Any = None, **own: Any
    ) -> dict[str, Any]:
        measure = {"threads": threads, "memory_gib": own.pop("memory_gib", None)}
        planned = spec(measure=measure, world=own.pop("world", 1))
        workload: Any = SimpleNamespace(data_digest=lambda: "", child_usage=lambda: children, unit="example")
        host = own.pop("host", None)
        over = None if host is None else lambda: host
        region = {"region_ns": WALL_NS, "region_cpu_ns": WALL_NS // 2, "peak_bytes": 1, "usage": usage, **own}
        return Scene(workload, device or Device(), BufferedLog(), 0.0).measure(planned, lambda: region, over)

    return run


@pytest.fixture
def resting_thread() -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


def test_what_others_had_of_the_core_of_one_thread_is_lost_and_disturbs_nothing(
    recorded: Recorded, moments: Callable[[float, float], None], resting_thread: None
) -> None:
    moments(0.0, 50.0)
    found = recorded(CROWDED)
    assert (found["lost_ns"], found["run_delay_ns"], found["disturbed"]) == (WALL_NS // 2, WALL_NS // 2, ())
    assert (found["minor_faults"], found["major_faults"], found["system_ns"]) == (3, 1, 5)
    moments(0.0, 50.0)
    left = recorded(Usage(WALL_NS, own_delay_ns=2 * WALL_NS), region_cpu_ns=WALL_NS + 1)
    assert left["lost_ns"] == WALL_NS - 1, "some time is left"


def test_a_kernel_that_tells_no_run_delay_leaves_crowding_a_disturbance(recorded: Recorded) -> None:
    found = recorded(Usage(displacements=400))
    assert found["lost_ns"] is None and "others took its core 400 times" in found["disturbed"]


def test_own_threads_may_be_what_a_region_waited_for(
    recorded: Recorded, moments: Callable[[float, float], None], resting_thread: None
) -> None:
    moments(0.0, 50.0)
    found = recorded(replace(CROWDED, others_ns=WALL_NS // 4))
    assert (found["lost_ns"], found["disturbed"]) == (None, (LOAD,))


def test_of_work_in_other_processes_nothing_is_subtracted(recorded: Recorded) -> None:
    found = recorded(CROWDED, children=resource.struct_rusage((1.0, 0.0, 1, *[0] * 13)))
    assert found["lost_ns"] is None
    assert not any("others had its core" in reason for reason in found["disturbed"])


@pytest.mark.parametrize("own", [{"threads": 2}, {"world": 2}, {"device": Device("cuda", 1)}])
def test_of_threads_ranks_and_devices_nothing_is_subtracted_and_a_lost_core_disturbs(
    recorded: Recorded, own: dict[str, Any]
) -> None:
    found = recorded(CROWDED, **own)
    assert found["lost_ns"] is None
    assert "others had its core for 50.0% of the time" in found["disturbed"]


@pytest.mark.parametrize(("memory_gib", "outcome"), [(None, "ok"), (2.0, "ok"), (1.0, "oom")])
def test_a_region_that_took_more_memory_than_it_may_is_one_without(
    recorded: Recorded, memory_gib: float | None, outcome: str
) -> None:
    found = recorded(CROWDED, memory_gib=memory_gib, peak_bytes=2 * 2**30)
    assert found["outcome"].value == outcome
    text = "peak memory of 2.00 GiB is over the 1.00 GiB of measure.memory_gib"
    assert found.get("failure") == (Failure(type="MemoryBudget", message=text) if outcome == "oom" else None)


@pytest.fixture
def moments(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Sets how many seconds of four cores others had used when a trial began, and ten seconds later."""

    def stated(before_s: float, after_s: float) -> None:
        left = [moment(before_s, 0.0), moment(after_s, 10.0)]
        monkeypatch.setattr(environment, "host_usage", lambda children: left.pop(0))

    return stated


LOAD = "load 9.0 on 4 cores"


def moment(busy_s: float, at_s: float) -> environment.HostUsage:
    return environment.HostUsage(
        cpu_s=4 * at_s, steal_s=0.0, load=9.0, node_cores=4, gpus=(), busy_s=busy_s, at_s=at_s
    )


def test_what_others_do_while_an_arm_waits_for_its_turn_disturbs_nothing(
    recorded: Recorded, moments: Callable[[float, float], None]
) -> None:
    moments(0.0, 36.0)
    assert recorded(Usage())["disturbed"] == ("other processes used 3.6 of 4 cores",)
    moments(0.0, 36.0)
    turns = moment(0.0, 0.0), replace(moment(36.0, 10.0), own_s=33.0)
    assert recorded(Usage(), host=turns)["disturbed"] == (), "what the arms used is not that of others"


@pytest.mark.parametrize(("cores", "disturbed"), [(1, 0), (3, 1)])
def test_work_in_other_processes_takes_as_many_cores_as_it_had(
    recorded: Recorded, moments: Callable[[float, float], None], cores: int, disturbed: int
) -> None:
    moments(0.0, 20.0)
    found = recorded(Usage(), children=resource.struct_rusage([0.0] * 16), region_cpu_ns=cores * WALL_NS)
    assert len(found["disturbed"]) == disturbed, "of four cores others had two"


def set_up(folder: Path, level: str, kind: Kind = Kind.TIMING, **own: Any) -> Any:
    own |= {"arm": Arm(id="a", label="a", levels={"units": "one", "code": level})}
    own |= {"code": code_digest(Compiled), "cache_dir": str(folder / "cache"), "measure": {"threads": 1}}
    return scene.set_up(spec(kind, workload="toys.odd:Compiled", **own), folder / "trial", 0)


@pytest.fixture
def put_back() -> Iterator[None]:
    drawn, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng([]):
        yield
    random.setstate(drawn)
    np.random.set_state(numpy)


@pytest.mark.usefixtures("one_thread", "put_back")
def test_compiled_code_that_was_chosen_by_timing_is_found_by_those_of_the_same_draw(tmp_path: Path) -> None:
    def found(level: str, server: int | None) -> list[str]:
        with set_up(tmp_path, level, server=server) as here:
            return here.workload.found

    with set_up(tmp_path, "plain", Kind.COUNTING):
        pass
    assert [found("plain", 7), found("tuned", 7), found("tuned", 7)] == [["plain"], [], ["tuned"]]
    assert [found("tuned", 8), found("anew", 7), found("plain", 7)] == [[], [], ["plain"]]


@pytest.mark.usefixtures("one_thread", "put_back")
def test_a_workload_is_closed_whatever_becomes_of_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    log = BufferedLog()
    monkeypatch.setattr(log, "close", lambda: closed.append("log"), raising=False)
    monkeypatch.setattr(scene, "log_of", lambda *words: log)
    monkeypatch.setattr(Compiled, "closed", 0)
    with pytest.raises(ValueError, match="the loss"), set_up(tmp_path, "plain", Kind.COUNTING):
        raise ValueError("the loss")
    assert Compiled.closed == 1 and closed == ["log"]


@pytest.mark.usefixtures("one_thread", "put_back")
@pytest.mark.parametrize(("when", "name"), [("made", "step"), ("set up", "close"), ("measured", "step")])
def test_an_attribute_that_hides_a_method_of_the_contract_is_named(
    when: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def making(workload: Compiled) -> None:
        if when == "made":
            setattr(workload, name, 3)

    def setting_up(workload: Compiled, *words: Any) -> None:
        if when == "set up":
            setattr(workload, name, 3)

    monkeypatch.setattr(Compiled, "__init__", making)
    monkeypatch.setattr(Compiled, "setup", setting_up)
    said = f"^toys.odd:Compiled: its attribute {name} hides the method of that name. Rename the attribute.$"
    with pytest.raises(ContractError, match=said), set_up(tmp_path, "plain", Kind.COUNTING) as here:
        setattr(here.workload, name, 3)  # as a step may do
        getattr(here.workload, name)()


def test_ranks_may_use_the_devices_of_as_many_nodes_as_the_trial_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "device_facts", lambda: Device("cuda", 1))
    with (
        pytest.raises(UnsupportedHere, match=r"^code=spread: sees 2$"),
        set_up(tmp_path, "spread", Kind.COUNTING, world=4, ranks_per_node=2),
    ):
        pass


def test_each_trial_of_an_arm_draws_where_its_memory_lies() -> None:
    others = [
        {"sweep": "t"}, {"pack": "p001"}, {"server": 2}, {"arm": Arm(id="b", label="a", levels={})},
        {"round": 1}, {"attempt": 1},
    ]  # fmt: skip
    drawn = {scene._layout_seed(spec(**own)) for own in ({}, {}, *others)}
    assert len(drawn) == 1 + len(others)


def test_the_work_is_the_same_each_time_whatever_numbers_are_by_default(monkeypatch) -> None:
    products = []
    multiply = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda *a, **k: products.append((a[0].shape, a[0].dtype)) or multiply(*a, **k)
    )
    scene.work_ns()
    first = list(products)
    torch.set_default_dtype(torch.float64)  # as a user's own module does
    try:
        scene.work_ns()
    finally:
        torch.set_default_dtype(torch.float32)
    assert products == [*first, *first]
