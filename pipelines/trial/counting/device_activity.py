"""How long the device works for an iteration, and in how many kernels: for counting trials on an accelerator.

Events at the ends of an iteration cannot tell: a device that waits for the host passes them as late as the
host sets them. The profiler sees each kernel, and what a kernel takes does not depend on how late it was
launched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class DeviceActivity:
    """Counts kernels while entered, copies and fills included, and the time in which any of them runs."""

    def __init__(self) -> None:
        self._profile: Any = None
        self._found: dict[str, float] = {}

    def __enter__(self) -> DeviceActivity:
        from torch.profiler import ProfilerActivity, profile, supported_activities

        if ProfilerActivity.CUDA in supported_activities():  # not in a torch built without CUPTI
            self._profile = profile(activities=[ProfilerActivity.CUDA])
            self._profile.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._profile is not None:
            self._profile.__exit__(*exception)
            self._found = summary(self._profile.events())

    def result(self, iterations: int, units: float) -> dict[str, float | None]:
        """kernel_launches per iteration, and device_busy_ns per unit; None where nothing was seen."""
        if not self._found.get("kernels"):
            return {"kernel_launches": None, "device_busy_ns": None}
        busy_ns = self._found["busy_ns"] / units if units > 0 else None
        return {"kernel_launches": self._found["kernels"] / iterations, "device_busy_ns": busy_ns}


def summary(events: Iterable[Any]) -> dict[str, float]:
    """Number of device events of a profile, and the time that their union covers."""
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in events
        if "CPU" not in str(event.device_type)
    ]
    return {"kernels": float(len(spans)), "busy_ns": 1e3 * covered(spans)}


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: kernels on several streams overlap."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        if end > reached:
            total += end - max(start, reached)
            reached = end
    return total
