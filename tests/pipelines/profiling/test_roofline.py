"""The roofline: bytes that operators move, what each phase took itself, and its ceiling."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from clocks import FakeClock

from perfsweep.pipelines.profiling import roofline
from perfsweep.pipelines.profiling.roofline import OUTSIDE, Ceiling, moved
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost
from perfsweep.pipelines.trial.machine import environment
from perfsweep.workloads.api import Device
from perfsweep.workloads.peaks import PEAKS

MEASURED: Any = SimpleNamespace(
    iteration_ns=100.0, iterations=3, phases={"forward": 60.0, "forward/attention": 20.0, "update": 10.0}
)


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.bfloat16, "half"), (torch.float64, "float64"), (torch.float32, "float32")]
)
def test_products_are_named_as_peaks_are_listed(dtype: torch.dtype, kind: str) -> None:
    bias, matrix = torch.ones(3), torch.ones(3, 3, dtype=dtype)
    assert roofline.product_type((bias, matrix, torch.ones(3, 3))) == kind


@pytest.mark.parametrize("hook", ["on", "off"])
def test_phases_are_billed_by_time_and_the_ceiling_is_told(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roofline, "ceiling_here", lambda dtype: Ceiling(dtype, 8e12, 2e12, "a book"))
    tool, x = roofline.Roofline(ProfileConfig(tool="roofline", hook=hook), tmp_path), torch.ones(4, 4)
    with tool.block(0, 1):
        with tool.phase("forward"), tool.phase("attention"):
            x @ x
        with tool.phase("update"):
            x.view(16).add_(1)
        x.double() @ x.double()
    found = tool.finish(MEASURED)
    assert found.costs == (
        Cost(name="forward", self_ns=120.0, flops=0.0, bytes=0.0),
        Cost(name=OUTSIDE, self_ns=90.0, calls=3.0, flops=128.0, bytes=2 * 192.0 + 3 * 128.0),
        Cost(name="forward/attention", self_ns=60.0, calls=1.0, flops=128.0, bytes=3 * 64.0),
        Cost(name="update", self_ns=30.0, calls=1.0, flops=0.0, bytes=2 * 64.0),
    )
    ceiling = {"flops_per_s": 8e12, "bytes_per_s": 2e12, "dtype": "float32", "ceiling": "a book"}
    assert dict(found.facts) == ceiling
    assert found.findings == (
        "the device does 8,000 GFLOP/s in float32 and moves 2,000 GB/s (a book); below 4 FLOP for each byte"
        " memory is the limit",
    )
    eager = "operators are counted as eager code runs them: what compilation fuses moves less"
    assert found.notes == ((eager,) if hook == "on" else (eager, roofline.RECORDED))


def test_a_copy_reads_and_writes_and_the_shortest_of_five_counts() -> None:
    clock, took = FakeClock(tick_ns=1), iter([70, 30, 90, 50, 40])
    assert roofline._shortest_s(lambda: clock.advance(next(took)), clock) == pytest.approx(31e-9)
    assert next(took, None) is None and clock.synchronisations == 5
    assert roofline._copy_rate("cpu", clock, elements=8) == pytest.approx(2 * 32 / 1e-9)


def test_a_known_device_has_its_makers_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "device_facts", lambda: Device("cuda", 1, "NVIDIA H200"))
    found = roofline.ceiling_here("half")
    known = PEAKS["H200"]
    assert found == Ceiling("half", known.half, known.bytes_per_s, "peak of NVIDIA H200")
    assert found.ridge == known.half / known.bytes_per_s


@pytest.mark.parametrize(("dtype", "ways"), [("float32", ["strided", "blocked"]), ("half", ["strided"])])
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


A = torch.zeros(4, 8)
ROW = torch.zeros(1, 8)
TABLE, FEW, MANY = torch.zeros(5, 4), torch.zeros(2, dtype=torch.int64), torch.zeros(50, dtype=torch.int64)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "out", "expected"),
    [
        ("add", (A, A), {}, A, 3 * A.nbytes),
        ("add", (), {"input": A, "other": 1}, A, 2 * A.nbytes),
        ("add", (ROW.expand(4, 8), 1), {}, A, ROW.nbytes + A.nbytes),
        ("split", (A, 2), {}, [A[:2], A[2:]], 2 * A.nbytes),
        ("fill_", (A, 0.0), {}, A, A.nbytes),
        ("copy_", (A, ROW), {}, A, A.nbytes + ROW.nbytes),
        ("empty", (3,), {}, A, 0),
        ("mm", (torch.eye(4).to_sparse_coo(), A), {}, A, 4 * 4 + 2 * 4 * 8 + 2 * A.nbytes),
        ("mm", (torch.eye(4).to_sparse_csr(), A), {}, A, 4 * 4 + (5 + 4) * 8 + 2 * A.nbytes),
        ("mm", (torch.eye(4).to_sparse_csc(), A), {}, A, 2 * A.nbytes),
        ("embedding", (TABLE, FEW), {}, torch.zeros(2, 4), 32 + FEW.nbytes + 32),
        ("embedding", (TABLE, MANY), {}, torch.zeros(50, 4), TABLE.nbytes + MANY.nbytes + 800),
        ("index_put_", (TABLE, [FEW], torch.zeros(2, 4)), {}, TABLE, FEW.nbytes + 32 + 2 * 32),
        ("index_put_", (TABLE, [MANY], torch.zeros(50, 4)), {}, TABLE, MANY.nbytes + 800 + 2 * TABLE.nbytes),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_operator_moves_what_it_reads_and_writes(
    name: str, args: Any, kwargs: Any, out: Any, expected: int
) -> None:
    assert moved(name, args, kwargs, out) == expected
