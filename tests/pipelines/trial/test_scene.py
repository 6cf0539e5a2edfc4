"""What a timed region's record says of its conditions: displaced by others, and computing alone."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.store.records import Arm, Kind, TrialSpec
from pipelines.store.schema import MeasureConfig
from pipelines.trial.machine.usage import Usage
from pipelines.trial.scene import Scene
from pipelines.trial.step_logging import BufferedLog
from workloads.api import Device

WALL_NS = 1_000_000_000
CROWDED = Usage(run_delay_ns=WALL_NS // 2, minor_faults=3, major_faults=1, system_ns=5)
Recorded = Callable[..., dict[str, Any]]


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """The fields of a timing trial's record whose region used the processor as told."""

    def run(
        usage: Usage, threads: int = 1, device: Device | None = None, children: Any = None
    ) -> dict[str, Any]:
        spec = TrialSpec(
            sweep="s",
            workload="w",
            config={},
            arm=Arm(id="a", label="a", levels={}),
            kind=Kind.TIMING,
            pack="p000",
            round=0,
            attempt=0,
            measure=MeasureConfig(threads=threads),
            code="",
            cache_dir=str(tmp_path),
        )
        workload: Any = SimpleNamespace(data_digest=lambda: "", child_usage=lambda: children)
        region = {"region_ns": WALL_NS, "region_cpu_ns": WALL_NS // 2, "peak_bytes": 1, "usage": usage}
        return Scene(workload, device or Device(), BufferedLog(), 0.0).measure(spec, lambda: region)

    return run


@pytest.fixture
def resting_thread() -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield
    done.set()
    thread.join()


def test_a_region_whose_core_others_had_is_displaced_and_computed_alone(recorded: Recorded) -> None:
    found = recorded(CROWDED)
    assert found["displaced"] and found["alone"]
    assert any("others had its core for 50.0% of the time" in reason for reason in found["disturbed"])
    assert (found["minor_faults"], found["major_faults"], found["system_ns"]) == (3, 1, 5)
    assert "usage" not in found


def test_a_thread_that_rests_changes_neither(recorded: Recorded, resting_thread: None) -> None:
    found = recorded(CROWDED)
    assert found["displaced"] and found["alone"]


def test_own_threads_may_be_what_a_region_waited_for(recorded: Recorded, resting_thread: None) -> None:
    found = recorded(Usage(run_delay_ns=WALL_NS // 2, others_ns=WALL_NS // 4))
    assert not found["displaced"] and not found["alone"]
    assert not any("others had its core" in reason for reason in found["disturbed"])


def test_work_in_other_processes_is_neither_displaced_nor_alone(recorded: Recorded) -> None:
    found = recorded(CROWDED, children=resource.struct_rusage((1.0, 0.0, 1, *[0] * 13)))
    assert not found["displaced"] and not found["alone"]
    assert not any("others had its core" in reason for reason in found["disturbed"])


def test_several_threads_never_compute_alone(recorded: Recorded) -> None:
    assert not recorded(CROWDED, threads=2)["alone"]
    assert not recorded(CROWDED, device=Device("cuda", 1))["alone"]
