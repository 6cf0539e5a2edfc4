"""The roofline's figures: what each phase took itself, and the ceiling that it is held against."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clocks import FakeClock

from perfsweep.pipelines.profiling import roofline
from perfsweep.pipelines.profiling.roofline import OUTSIDE, Ceiling, PhaseCalls
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device
from perfsweep.workloads.peaks import PEAKS

MEASURED: Any = SimpleNamespace(
    iteration_ns=100.0, iterations=3, phases={"forward": 60.0, "forward/attention": 20.0, "update": 10.0}
)


def test_a_phase_is_billed_without_those_inside_it_and_the_rest_is_outside() -> None:
    own = {"forward": 40.0, "forward/attention": 20.0, "update": 10.0, OUTSIDE: 30.0}
    assert roofline.own_times(MEASURED) == own


def test_a_slash_in_the_name_of_a_phase_is_no_phase_around_it() -> None:
    phases = {"load/rows": 20.0, "loss": 30.0, "loss/ce/sum": 10.0}
    measured: Any = SimpleNamespace(iteration_ns=100.0, iterations=1, phases=phases)
    assert roofline.own_times(measured) == {
        "load/rows": 20.0,
        "loss": 20.0,
        "loss/ce/sum": 10.0,
        OUTSIDE: 50.0,
    }


def test_phases_come_by_their_time_with_what_was_counted_in_them() -> None:
    calls = PhaseCalls()
    x = torch.ones(4, 8)
    with calls.mode(), calls.phase("forward"), calls.phase("attention"):
        x @ x.T
    costs = list(roofline.phase_costs(calls.phases, MEASURED))
    assert [(cost.name, cost.self_ns) for cost in costs] == [
        ("forward", 120.0), (OUTSIDE, 90.0), ("forward/attention", 60.0), ("update", 30.0)
    ]  # fmt: skip
    attention = costs[2]
    assert (attention.calls, attention.flops) == (1, 2 * 4 * 8 * 4)
    assert attention.bytes == 4 * (2 * 4 * 8 + 4 * 4)
    assert costs[0].flops == costs[0].bytes == 0
    assert dict(calls.dtypes) == {"float32": 256}


def test_a_ceiling_is_the_shortest_run_with_what_the_device_still_had_to_do() -> None:
    clock, durations = FakeClock(time_ns=10**12, events=1), iter([5, 3, 7, 4, 9])
    found = roofline._shortest_s(lambda: clock.launch(next(durations) * 1000), clock)
    assert found == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.bfloat16, "half"), (torch.float64, "float64"), (torch.float32, "float32")]
)
def test_products_are_named_as_peaks_are_listed(dtype: torch.dtype, kind: str) -> None:
    bias, matrix = torch.ones(3), torch.ones(3, 3, dtype=dtype)
    assert roofline.product_type((bias, matrix, matrix)) == kind


def test_a_known_device_has_its_makers_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "device_facts", lambda: Device("cuda", 1, "NVIDIA H200"))
    found = roofline.ceiling_here("half")
    known = PEAKS["H200"]
    assert found == Ceiling("half", known.half, known.bytes_per_s, "peak of NVIDIA H200")
    assert found.ridge == known.half / known.bytes_per_s


def test_of_an_unknown_one_a_product_and_a_copy_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "device_facts", lambda: Device())
    monkeypatch.setattr(roofline, "_shortest_s", lambda work, clock: 0.5 + 0.0 * work().numel())
    clock: Any = None
    assert roofline._product_rate("half", "cpu", clock, size=4) == 2 * 4**3 / 0.5
    assert roofline._copy_rate("cpu", clock, elements=8) == 2 * 8 * 4 / 0.5


@pytest.mark.parametrize(
    ("dtype", "ways"), [("float32", ["strided", "blocked"]), ("half", ["strided"]), ("float64", ["strided"])]
)
def test_the_fastest_library_for_a_product_is_the_ceiling(
    monkeypatch: pytest.MonkeyPatch, dtype: str, ways: list[str]
) -> None:
    seen, seconds = [], {"strided": 0.5, "blocked": 0.25}

    def timed(work: Any, clock: Any) -> float:
        product = work()
        seen.append("blocked" if product.is_mkldnn else "strided")
        assert (product.to_dense() if product.is_mkldnn else product).eq(4).all()
        return seconds[seen[-1]]

    monkeypatch.setattr(roofline, "_shortest_s", timed)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    rate = roofline._product_rate(dtype, "cpu", FakeClock(), size=4)
    assert (seen, rate) == (ways, 2 * 4**3 / seconds[ways[-1]])


def test_a_roofline_says_what_the_device_does_in_the_type_that_most_work_was_done_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ceiling(dtype: str) -> Ceiling:
        asked.append(dtype)
        return Ceiling(dtype, 2e12, 1e11, "peak of X")

    monkeypatch.setattr(roofline, "ceiling_here", ceiling)
    tool = roofline.Roofline(ProfileConfig(tool="roofline"), tmp_path)
    assert tool.finish(MEASURED).facts[2] == ("dtype", "float32"), "where nothing was multiplied"
    x = torch.ones(4, 4)
    with tool._calls.mode(), tool.phase("forward"):
        x @ x
        x.double() @ x.double() @ x.double()
    found = tool.finish(MEASURED)
    assert asked == ["float32", "float64"]
    assert dict(found.facts) == {
        "flops_per_s": 2e12,
        "bytes_per_s": 1e11,
        "dtype": "float64",
        "ceiling": "peak of X",
    }
    (limits,) = found.findings
    assert limits == (
        "the device does 2,000 GFLOP/s in float64 and moves 100 GB/s (peak of X); below 20 FLOP for each byte"
        " memory is the limit"
    )
    assert found.costs[0].name == "forward" and found.costs[0].flops == 3 * 2 * 4**3
    assert found.notes[0].startswith("operators are counted as eager code runs them")
    assert roofline.RECORDED not in found.notes
    off = roofline.Roofline(ProfileConfig(tool="roofline", hook="off"), tmp_path)
    assert roofline.RECORDED in off.finish(MEASURED).notes
