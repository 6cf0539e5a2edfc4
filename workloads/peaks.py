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

    def flops_per_s(self, dtype: str) -> float | None:
        """The rate for ``float64``, ``float32``, ``tf32`` or ``half``; None for another type."""
        rates = {"float64": self.float64, "float32": self.float32, "tf32": self.tf32, "half": self.half}
        return rates.get(dtype)


# The first name that is part of the device's counts, so that longer names stand before what they contain.
PEAKS = {
    "H200": Peak(67e12, 67e12, 494e12, 989e12, 4.8e12),
    "H100 PCIe": Peak(51e12, 51e12, 378e12, 756e12, 2.0e12),
    "H100 NVL": Peak(60e12, 60e12, 418e12, 835e12, 3.9e12),
    "H100": Peak(67e12, 67e12, 494e12, 989e12, 3.35e12),
    "A100-SXM4-80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 2.04e12),
    "A100 80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.94e12),
    "A100": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.56e12),
}


def peak(device: str) -> Peak | None:
    """The peak of a device by its name, None where it is not known."""
    return next((found for name, found in PEAKS.items() if name in device), None)
