"""Measures the power of a machine at rest, once for each pack, while none of its trials runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from perfsweep.pipelines.store.needed_once import IdlePower
from perfsweep.pipelines.trial.machine import environment
from perfsweep.pipelines.trial.machine.energy import (
    Unreadable,
    gpu_counters,
    grown_j,
    processor_counters,
    seconds_between_changes,
    shared_by,
)
from perfsweep.workloads.api import Device

REST_S = 1.0
"""Seconds of rest, or longer where counters change seldom."""
MOST_CHANGES = 30
"""A rest of so many changes knows the power to some 3 %."""


def idle_power(
    device: Device, sleep: Callable[[float], None] = time.sleep, now: Callable[[], float] = time.perf_counter
) -> IdlePower:
    """Watch how often the counters change, then read them at both ends of a rest of some seconds.

    Machines without counters say so at once: they cost nothing.
    """
    with ExitStack() as opened:
        try:
            indices = list(range(device.count)) if device.type == "cuda" else []
            counters = opened.enter_context(gpu_counters(indices) if indices else processor_counters())
            step_s = seconds_between_changes(counters, now)
            before, began, usage = counters.read_j(), now(), environment.host_usage()
            sleep(max(REST_S, MOST_CHANGES * (step_s or 0.0)))
            after, seconds = counters.read_j(), now() - began
            watts = {
                counter.name: grown_j(counter, *ends) / seconds
                for counter, *ends in zip(counters.each, before, after, strict=True)
            }
        except Unreadable as error:
            return IdlePower(withheld=str(error))
        if shared := shared_by(usage, environment.host_usage(), watts, counters.source, 0.0):
            return IdlePower(source=counters.source, step_s=step_s, withheld=shared)
        return IdlePower(source=counters.source, watts=watts, step_s=step_s)
