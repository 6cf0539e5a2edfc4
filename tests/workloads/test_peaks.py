"""A device's row is found by the name that its driver gives, never that of a cousin."""

from __future__ import annotations

import pytest

from perfsweep.workloads.peaks import peak


@pytest.mark.parametrize(
    ("name", "half", "bytes_per_s"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12, 3.35e12),
        ("NVIDIA H100 PCIe", 756e12, 2.0e12),
        ("NVIDIA H200", 989e12, 4.8e12),
        ("NVIDIA GH200 144G HBM3e", 989e12, 4.9e12),
        ("NVIDIA H20", 148e12, 4.0e12),
        ("NVIDIA GB200", 2500e12, 8.0e12),
        ("NVIDIA GeForce RTX 4090", 165.2e12, 1.01e12),
        ("NVIDIA L40", 181e12, 0.864e12),
        ("NVIDIA L4", 121e12, 0.3e12),
    ],
)
def test_the_row_is_that_of_the_device(name: str, half: float, bytes_per_s: float) -> None:
    found = peak(name)
    assert found is not None
    assert (found.half, found.bytes_per_s) == (half, bytes_per_s)


LESS = ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D", "NVIDIA A10G", "NVIDIA RTX A4000"]
SLICES = ["NVIDIA H100 MIG 1g.10gb", "NVIDIA H100-40C", "NVIDIA A100-4-20C", "GRID A100-10C", "A40-48Q"]


@pytest.mark.parametrize(
    "name", [*LESS, *SLICES, "NVIDIA H20-3e", "NVIDIA RTX 6000 Ada Generation", "NVIDIA T400", ""]
)
def test_what_is_not_listed_has_no_peak(name: str) -> None:
    assert peak(name) is None


def test_bytes_of_eight_bits_have_a_rate_where_the_device_multiplies_them() -> None:
    h100, a100 = peak("NVIDIA H100 80GB HBM3"), peak("NVIDIA A100 80GB PCIe")
    assert h100 and a100
    assert (h100.flops_per_s("fp8"), a100.flops_per_s("fp8")) == (1979e12, None)
