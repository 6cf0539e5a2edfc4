"""Whose clock says how long an iteration took: the device's, where its marks are complete."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def iteration_times(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Take the time of each iteration from a series, [N] in ns: the device's own, or without one the host's.

    Where the device's marks are not complete each iteration gets its share of the region: an arm that never
    waits for its device would otherwise show how fast it can launch.
    """
    wall, device = arrays["wall_ns"], arrays.get("device_ns")
    if device is None:
        return wall
    return device if _complete(device) else np.full(len(wall), wall.mean())


def phase_times(arrays: Mapping[str, np.ndarray], phase: str) -> tuple[str, np.ndarray]:
    """Take the times of a phase from a series, [N] in ns, and whose they are: ``device`` or ``host``."""
    device = arrays.get(f"device_{phase}")
    if device is not None and _complete(device):
        return "device", device
    return "host", arrays[f"host_{phase}"]


def _complete(device_ns: np.ndarray) -> bool:
    """Whether no time is the negative one that stands for an event that could not be had."""
    return not (device_ns < 0).any()
