"""What products and copies reach, held against what the device's makers say it can reach at most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfsweep.pipelines.gpu_check.answer import Line, judged
from perfsweep.workloads.peaks import peak

ABOVE = 1.03
"""No rate passes its peak: above it the clock or the table of peaks is wrong."""

BELOW = 0.25
"""Of the peak: large products and copies reach more, unless the GPU is shared, split or held down."""

PRODUCTS = {"half": "bf16 products", "tf32": "TF32 products", "float32": "float32 products"}
COPIES = {"device": "device copies", "pinned": "pinned copies to the device", "pageable": "pageable ones"}


def rate_lines(device: str, rates: Mapping[str, float]) -> Iterator[Line]:
    """Judge rates by name: products in FLOP/s, copies in bytes per second."""
    best = peak(device)
    for kind, words in PRODUCTS.items():
        most = best.flops_per_s(kind) if best else None
        yield _against(words, rates[kind], most, f"{rates[kind] / 1e12:.0f} TFLOP/s")
    copied = rates["device"]
    yield _against(COPIES["device"], copied, best.bytes_per_s if best else None, f"{copied / 1e12:.2f} TB/s")
    pinned, pageable = rates["pinned"], rates["pageable"]
    text = f"{pinned / 1e9:.1f} GB/s, {COPIES['pageable']} {pageable / 1e9:.1f} GB/s"
    yield judged(COPIES["pinned"], pinned >= pageable, text, pinned=pinned, pageable=pageable)


def _against(name: str, rate: float, most: float | None, text: str) -> Line:
    if most is None:
        return judged(name, rate > 0, f"{text}; no peak is known for this device", rate=rate)
    share = rate / most
    why = "" if share <= ABOVE else ": more than it can, so the clock or the table of peaks is wrong"
    why = why or ("" if share >= BELOW else ": is the GPU shared, split or held down?")
    return judged(name, BELOW <= share <= ABOVE, f"{text}, {share:.0%} of the peak{why}", rate=rate)
