"""The share of a device's peak is work by time by rate, and unsaid where one of the three is unknown."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.trial.timing.quantities import share_of_peak
from perfsweep.workloads.api import Device, Work
from perfsweep.workloads.peaks import PEAKS

H200 = Device("cuda", count=1, name="NVIDIA H200")
TWO = Device("cuda", count=2, name="NVIDIA H200")
SECOND_NS = 10**9


@pytest.mark.parametrize(("products", "rate"), [("float32", 67e12), ("half", 989e12)])
def test_the_share_is_of_the_rate_for_the_type_of_the_products(products: str, rate: float) -> None:
    # 1e9 FLOPs a unit, 1000 units in half a second: 2e12 FLOP/s.
    assert share_of_peak(Work(1e9, products=products), 1000, SECOND_NS // 2, H200) == pytest.approx(
        2e12 / rate
    )


def test_every_device_of_a_process_group_counts_and_a_shared_one_once() -> None:
    alone = share_of_peak(Work(1e9), 1000, SECOND_NS, H200)
    assert alone == pytest.approx(1e12 / PEAKS["H200"].float32)
    assert share_of_peak(Work(1e9), 1000, SECOND_NS, TWO, ranks=2) == pytest.approx(alone / 2)
    assert (
        share_of_peak(Work(1e9), 1000, SECOND_NS, TWO, ranks=1)
        == share_of_peak(Work(1e9), 1000, SECOND_NS, H200, 2)
        == alone
    )


@pytest.mark.parametrize(
    ("work", "device"),
    [
        (Work(), H200),
        (Work(1e9, products="fp8"), Device("cuda", count=1, name="NVIDIA A100")),
        (Work(1e9), Device("cuda", count=1, name="NVIDIA Unheard-Of")),
        (Work(1e9), Device("cpu", name="NVIDIA H200")),
    ],
    ids=["no formula", "no such rate", "no such device", "a host"],
)
def test_what_is_not_known_is_no_share(work: Work, device: Device) -> None:
    assert share_of_peak(work, 1000, SECOND_NS, device) is None
