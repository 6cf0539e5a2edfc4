"""The check of a clock passes a device that is as it should be, and fails each defect that is planted."""

from __future__ import annotations

from typing import Any, cast

import pytest
from fake_bench import FakeBench

from perfsweep.pipelines.gpu_check.answer import Here, Line, Verdict
from perfsweep.pipelines.gpu_check.device_stages import COPIES, PRODUCTS, examine_clock, lines_of, rate_lines
from perfsweep.pipelines.trial.timing.recorder import Series
from perfsweep.workloads.api import Device
from perfsweep.workloads.peaks import peak

GOOD = {"half": 650e12, "tf32": 380e12, "float32": 50e12, "device": 2.8e12, "pinned": 50e9, "pageable": 9e9}
H100 = "NVIDIA H100 80GB HBM3"


def failed(bench: FakeBench) -> list[str]:
    return [line.name for line in lines_of(cast("Any", bench)) if line.verdict is Verdict.FAIL]


def test_a_device_as_it_should_be_passes() -> None:
    lines = list(lines_of(cast("Any", FakeBench())))
    assert [line.verdict for line in lines] == [Verdict.PASS] * 3
    assert lines[2].text.startswith("host-bound: the device works 5% of the time")


@pytest.mark.parametrize(
    ("bench", "name"),
    [
        ({"drift": 1.05}, "events"),
        ({"slows_at": 1800}, "device-bound loop"),
        ({"seen": 20.0}, "host-bound loop"),
        ({"seen": 0.1}, "host-bound loop"),
    ],
)
def test_a_planted_defect_is_failed(bench: dict, name: str) -> None:
    assert name in failed(FakeBench(**bench))


def test_judging_launches_in_place_of_the_device_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Series, "judged_ns", lambda self, cadence: self.wall_ns)
    assert "device-bound loop" in failed(FakeBench())


def impossible(rates: dict[str, float], name: str = H100) -> list[str]:
    return [line.name for line in rate_lines(name, {**GOOD, **rates}) if line.verdict is Verdict.FAIL]


def test_a_gpu_that_encrypts_copies_and_one_that_is_a_slice_pass() -> None:
    assert impossible({}) == impossible({"pinned": 3.9e9, "pageable": 4.0e9}) == []
    assert impossible({"pinned": 5e9}) == ["pinned copies to the device"]
    share = {name: rate / 8 for name, rate in GOOD.items()}
    assert impossible(share, "NVIDIA H100-10C") == []


def rated(share: float = 0.7, **changes: float) -> dict[str, Line]:
    best = peak(H100)
    assert best is not None and best.bytes_per_s
    found = {kind: share * (best.flops_per_s(kind) or 0.0) for kind in PRODUCTS}
    found |= {"device": share * best.bytes_per_s, "pinned": 5e10, "pageable": 1e10, **changes}
    return {line.name: line for line in rate_lines(H100, found)}


@pytest.mark.parametrize(
    ("share", "good", "why"),
    [
        (0.25, True, "25% of the peak"),
        (0.24, False, "24% of the peak: is the GPU shared, split or held down?"),
        (1.029, True, "103% of the peak"),
        (1.04, False, "104% of the peak: more than it can, so the clock or the table of peaks is wrong"),
    ],
)
def test_rates_are_held_against_the_peak(share: float, good: bool, why: str) -> None:
    lines = rated(share)
    for words in (*PRODUCTS.values(), COPIES["device"]):
        assert (lines[words].verdict is Verdict.PASS) == good
        assert lines[words].text.endswith(why)


def test_rates_are_told_in_units_of_their_size() -> None:
    lines = rated(device=2.5e12, half=4.2e14)
    assert lines["bf16 products"].text.startswith("420 TFLOP/s, ")
    assert lines["device copies"].text.startswith("2.50 TB/s, ")
    pinned = lines["pinned copies to the device"]
    assert pinned.text == "50.0 GB/s, pageable ones 10.0 GB/s"
    assert pinned.figures == {"pinned": 5e10, "pageable": 1e10}
    assert lines["bf16 products"].figures == {"rate": 4.2e14}


def test_without_a_known_peak_any_rate_will_do() -> None:
    found = dict.fromkeys([*PRODUCTS, "device", "pinned", "pageable"], 1e9)
    first, *_ = rate_lines("Unheard-of 9000", {**found, "half": 0.0})
    second = list(rate_lines("Unheard-of 9000", found))[1]
    assert (first.verdict, second.verdict) == (Verdict.FAIL, Verdict.PASS)
    assert second.text == "0 TFLOP/s; no peak is known for this device"


def test_without_a_gpu_it_says_so(tmp_path) -> None:
    assert {line.verdict for line in examine_clock(Here(Device(), tmp_path))} == {Verdict.NEEDS_GPU}
