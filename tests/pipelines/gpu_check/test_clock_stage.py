"""The check of a clock passes a device that is as it should be, and fails each defect that is planted."""

from __future__ import annotations

import pytest
from fake_bench import FakeBench

from perfsweep.pipelines.gpu_check.answer import Here, Verdict
from perfsweep.pipelines.gpu_check.clock_stage import examine, lines_of, rate_lines
from perfsweep.pipelines.trial.timing.recorder import Series
from perfsweep.workloads.api import Device

GOOD = {"half": 650e12, "tf32": 380e12, "float32": 50e12, "device": 2.8e12, "pinned": 50e9, "pageable": 9e9}
H100 = "NVIDIA H100 80GB HBM3"


def failed(bench: FakeBench) -> list[str]:
    return [line.name for line in lines_of(bench) if line.verdict is Verdict.FAIL]


def test_a_device_as_it_should_be_passes() -> None:
    lines = list(lines_of(FakeBench()))
    assert [line.verdict for line in lines] == [Verdict.PASS] * 3
    assert lines[2].text.startswith("host-bound: the device works 5% of the time")


@pytest.mark.parametrize(
    ("bench", "name"),
    [
        ({"drift": 1.05}, "events"),
        ({"drift": 0.95}, "events"),
        ({"slows_at": 1800}, "device-bound loop"),
        ({"seen": 20.0}, "host-bound loop"),
        ({"seen": 0.0}, "host-bound loop"),
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


def test_plausible_rates_pass() -> None:
    assert impossible({}) == []
    assert impossible({}, "a GPU of tomorrow") == []


def test_a_gpu_that_encrypts_copies_and_one_that_is_a_slice_pass() -> None:
    assert impossible({"pinned": 3.9e9, "pageable": 4.0e9}) == []
    share = {name: rate / 8 for name, rate in GOOD.items()}
    assert impossible(share, "NVIDIA H100-10C") == []


@pytest.mark.parametrize(
    ("rates", "name"),
    [
        ({"half": 1200e12}, "bf16 products"),
        ({"half": 100e12}, "bf16 products"),
        ({"tf32": 700e12}, "TF32 products"),
        ({"float32": 400e12}, "float32 products"),  # TF32 in disguise
        ({"device": 0.5e12}, "device copies"),
        ({"pinned": 5e9}, "pinned copies to the device"),
    ],
)
def test_a_rate_that_cannot_be_or_should_not_fails(rates: dict, name: str) -> None:
    assert impossible(rates) == [name]


def test_without_a_gpu_it_says_so(tmp_path) -> None:
    assert {line.verdict for line in examine(Here(Device(), tmp_path))} == {Verdict.NEEDS_GPU}
