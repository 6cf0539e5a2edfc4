"""What devices can do at best, by their names: the makers' figures without structured sparsity."""

from __future__ import annotations

import re
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


# The first name that the device's has, by whole words, counts: longer names come before shorter ones.
PEAKS = {
    # GB300 NVL72 and HGX B300 data sheets, for one GPU
    "GB300": Peak(1.4e12, 80e12, 1250e12, 2500e12, 8.0e12, fp8=5000e12),
    "B300": Peak(1.25e12, 75e12, 1125e12, 2250e12, 8.0e12, fp8=4500e12),
    # Blackwell data sheet, "Individual Blackwell GPU Specifications": of HGX B200 180 GB at 7.7 TB/s
    "GB200": Peak(40e12, 80e12, 1250e12, 2500e12, 8.0e12, fp8=5000e12),
    "B200": Peak(37e12, 75e12, 1100e12, 2250e12, 7.7e12, fp8=4500e12),
    # GH200, H200, H100 and H20 data sheets
    "GH200 144G": Peak(67e12, 67e12, 494e12, 989e12, 4.9e12, fp8=1979e12),
    "GH200": Peak(67e12, 67e12, 494e12, 989e12, 4.0e12, fp8=1979e12),
    "H200 NVL": Peak(60e12, 60e12, 418e12, 835e12, 4.8e12, fp8=1671e12),
    "H200": Peak(67e12, 67e12, 494e12, 989e12, 4.8e12, fp8=1979e12),
    "H100 PCIe": Peak(51e12, 51e12, 378e12, 756e12, 2.0e12, fp8=1513e12),
    "H100 NVL": Peak(60e12, 60e12, 418e12, 835e12, 3.9e12, fp8=1671e12),
    "H100": Peak(67e12, 67e12, 494e12, 989e12, 3.35e12, fp8=1979e12),
    "H20": Peak(1e12, 44e12, 74e12, 148e12, 4.0e12, fp8=296e12),
    # L40S, L40 and L4 data sheets; float64 is a 64th of float32
    "L40S": Peak(1.4e12, 91.6e12, 183e12, 362e12, 0.864e12, fp8=733e12),
    "L40": Peak(1.4e12, 90.5e12, 90.5e12, 181e12, 0.864e12, fp8=362e12),
    "L4": Peak(0.47e12, 30.3e12, 60e12, 121e12, 0.3e12, fp8=242e12),
    # RTX Blackwell, RTX PRO Blackwell and Ada architecture papers, with sums in float32 as PyTorch has them
    "RTX PRO 6000 Blackwell Workstation Edition": Peak(1.97e12, 126e12, 252e12, 504e12, 1.79e12, fp8=1007e12),
    "RTX PRO 6000 Blackwell Server Edition": Peak(1.88e12, 120e12, 240e12, 480e12, 1.6e12, fp8=960e12),
    "RTX 5090": Peak(1.64e12, 104.8e12, 104.8e12, 209.5e12, 1.79e12, fp8=419e12),
    "RTX 4090": Peak(1.29e12, 82.6e12, 82.6e12, 165.2e12, 1.01e12, fp8=330.3e12),
    # DGX Spark: its data sheet has FP4 (1 PFLOP/s with sparsity) and float32, of which the others are shares
    "GB10": Peak(0.48e12, 31e12, 62.5e12, 125e12, 0.273e12, fp8=250e12),
    # A100, A30, A10, A40 and RTX A6000 data sheets (309.7 TFLOP/s there are with sparsity)
    "A100-SXM4-80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 2.04e12),
    "A100 80GB": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.94e12),
    "A100": Peak(19.5e12, 19.5e12, 156e12, 312e12, 1.56e12),
    "A30": Peak(10.3e12, 10.3e12, 82e12, 165e12, 0.933e12),
    "A10": Peak(0.49e12, 31.2e12, 62.5e12, 125e12, 0.6e12),
    "A40": Peak(0.58e12, 37.4e12, 74.8e12, 149.7e12, 0.696e12),
    "RTX A6000": Peak(0.6e12, 38.7e12, 77.4e12, 154.8e12, 0.768e12),
    # T4 data sheet; its memory from the Turing paper (256 bit at 10 Gb/s), as the sheet rounds to 300 GB/s
    "T4": Peak(0.25e12, 8.1e12, 8.1e12, 65e12, 0.32e12),
}

_OTHER = re.compile(r"\bH20-3e\b|\bMIG\b|\bLaptop\b|\bMax-Q\b|\bD( v2)?$|^GRID\b|-\d+[ABCQ]$")
"""Names of a GPU whose data sheet is not public; of slices (MIG, profiles of vGPU such as ``H100-40C``); and
of smaller boards."""


def peak(device: str) -> Peak | None:
    """The peak of a device by its name; None where it is not known, as of a slice of a GPU."""
    if _OTHER.search(device):
        return None
    return next((found for name, found in PEAKS.items() if re.search(rf"\b{name}\b", device)), None)
