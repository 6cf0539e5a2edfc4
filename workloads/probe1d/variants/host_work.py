"""What the host does for each pass: timing, logging, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.probe1d.claims import IDEAS, PLAN, SUSPECTED
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog, NoHook

TIMING_HOOK = Toggle(
    "timing_hook",
    (Level("off"), Level("on", witness="hook_records"), Level("profiler", witness="profiler_samples")),
    "time every slab pass, by marks read one pass late or by a sampling profiler",
    IDEAS,
)


class TimedPasses(Part):
    """Each pass is timed."""

    def pass_hook(self, device: str) -> NoHook:
        """By marks that are read a pass late."""
        from perfsweep.workloads.probe1d.maths.pass_log import PassTimes

        return PassTimes(self.counts, device)


class SampledPasses(Part):
    """The job is sampled."""

    def pass_hook(self, device: str) -> NoHook:
        """By pyinstrument."""
        from perfsweep.workloads.probe1d.maths.pass_log import SamplingProfiler

        return SamplingProfiler(self.counts)


NO_SYNC_LOG = Toggle(
    "no_sync_log",
    choices("off", "on", witness="host_syncs"),
    "keep metrics and the stop flag on the device and copy them out without waiting",
    SUSPECTED,
)


class NoSyncLog(Part):
    """The host waits for nothing."""

    def pass_log(self) -> DeviceLog:
        """Copied out every few passes."""
        from perfsweep.workloads.probe1d.maths.pass_log import DeviceLog

        return DeviceLog(self.counts, self.sink)


VARIANTS = (
    Variant(TIMING_HOOK, {"on": TimedPasses, "profiler": SampledPasses}),
    Variant(NO_SYNC_LOG, {"on": NoSyncLog}),
    Variant(shared.caching_allocator(source=PLAN)),
)
