"""What devices can do at best, by their names: the makers' figures without structured sparsity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peak:
    """Multiply-add rates in FLOP/s by the type of the products, and bytes per second to and from memory."""

    float64: float
    float32: float
    tf32: float
    half: float
    bytes_per_s: float
    fp8: float | None = None

    def flops_per_s(self, dtype: str) -> float | None:
        """The rate for ``float64``, ``float32``, ``tf32``, ``half`` or ``fp8``; None where there is none."""
        rates = {"float64": self.float64, "float32": self.float32, "tf32": self.tf32}
        return {**rates, "half": self.half, "fp8": self.fp8}.get(dtype)


# The first name that is part of the device's counts, so that longer names stand before what they contain.
PEAKS = {
    "GB200": Peak(40e12, 80e12, 1250e12, 2500e12, 8.0e12, fp8=5000e12),
    "B200": Peak(37e12, 75e12, 1100e12, 2250e12, 8.0e12, fp8=4500e12),
    "GH200 144G": Peak(67e12, 67e12, 494e12, 989e12, 4.9e12, fp8=1979e12),
    "GH200": Peak(67e12, 67e12, 494e12, 989e12, 4.0e12, fp8=1979e12),
    "H200 NVL": Peak(60e12, 60e12, 418e12, 835e12, 4.8e12, fp8=1671e12),
    "H200": Peak(67e12, 67e12, 494e12, 989e12, 4.8e12, fp8=1979e12),
    "H100 PCIe": Peak(51e12, 51e12, 378e12, 756e12, 2.0e12, fp8=1513e12),
    "H100 NVL": Peak(60e12, 60e12, 418e12, 835e12, 3.9e12, fp8=1671e12),
    "H100": Peak(67e12, 67e12, 494e12, 989e12, 3.35e12, fp8=1979e12),
    "H20": Peak(1e12, 44e12, 74e12, 148e12, 4.0e12, fp8=296e12),
    "L40S": Peak(1.4e12, 91.6e12, 183e12, 362e12, 0.864e12, fp8=733e12),
    "A100-SXM4-80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 2.04e12),
    "A100 80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.94e12),
    "A100": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.56e12),
}


def peak(device: str) -> Peak | None:
    """The peak of a device by its name; None where it is not known, as of a slice of a GPU."""
    if "MIG" in device:
        return None
    return next((found for name, found in PEAKS.items() if name in device), None)
