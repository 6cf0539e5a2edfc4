"""A workload for several GPUs: one process over two of them, or a process for each."""

from __future__ import annotations

from perfsweep.workloads.api import Device, Level, Toggle
from perfsweep.workloads.toggles import needs_ranks
from toys.only_here import OnlyHere


def two_gpus(device: Device) -> str | None:
    return None if device.count > 1 else "needs two GPUs"


class Devices(OnlyHere):
    """Shares its work in ways that want different numbers of GPUs."""

    toggles = (
        Toggle(
            "parallel",
            (
                Level("single"),
                Level("split", unsupported=two_gpus, witness="steps"),
                Level("pair", ranks=2, unsupported=needs_ranks, witness="steps"),
                Level("replicas", ranks=2, per_gpu=True, unsupported=needs_ranks, witness="steps"),
            ),
            "how several GPUs share the work",
            "toy",
        ),
    )
