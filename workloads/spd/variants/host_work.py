"""What the host does around the arithmetic: checkpoints, logging, garbage, references, profilers, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Clock, Level, Toggle
from perfsweep.workloads.spd.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfsweep.workloads.spd.maths.masked_passes import Moment
    from perfsweep.workloads.spd.maths.sites import Stacks
    from perfsweep.workloads.spd.training.loop import EmptyingCollector
    from perfsweep.workloads.training.checkpoints import SyncWriter

CHECKPOINT = shared.checkpoint(every={"witness": "background_saves"}, source="7.1")


class BackgroundSaves(Part):
    """Checkpoints are written by a thread."""

    def writing(self) -> SyncWriter:
        """The training goes on."""
        from perfsweep.workloads.training.checkpoints import AsyncWriter

        return AsyncWriter()


WANDB_LOGGING = shared.wandb_logging(
    keep=("each", "commit_false", "buffered"),
    each={"buffered": {"witness": "wandb_calls"}, "commit_false": {"witness": "wandb_commits"}},
    source="7.2",
)

GC = shared.gc("oom_only", every={"witness": "collections"}, source="8.1")


class OtherCollections(Part):
    """Garbage is collected less often, and the allocator's cache emptied after it."""

    def collecting(self) -> EmptyingCollector:
        """By the policy of the level."""
        from perfsweep.workloads.spd.training.loop import EmptyingCollector
        from perfsweep.workloads.training.garbage_collection import POLICIES

        return EmptyingCollector(**POLICIES[str(self.levels["gc"])])


class CollectedWhenFull(Part):
    """Garbage is collected where memory runs out."""

    def collecting(self) -> EmptyingCollector:
        """Never by itself."""
        from perfsweep.workloads.spd.training.loop import EmptyingCollector

        return EmptyingCollector()

    def attempt(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Once more after a collection."""
        import torch

        try:
            return super().attempt(batch, clock)
        except torch.OutOfMemoryError:
            self.collector.collect()
        return super().attempt(batch, clock)


FREE_EARLY = Toggle(
    "free_early",
    choices("off", "on", witness="held_bytes"),
    "drop logits and importances once the loss has them",
    "8.3",
)


class FreedEarly(Part):
    """Nothing of a microbatch is kept once its loss is there."""

    def hold(self, moment: Moment) -> None:
        """Let go."""


PROFILER = Toggle(
    "profiler",
    (
        Level("off"),
        Level("events", unsupported=shared.needs_cuda, witness="recorded_events"),
        Level("torch", witness="profiled_steps"),
    ),
    "a profiler during the training",
    "9",
)
RING = 256
WAIT, WARMUP, ACTIVE = 1, 1, 3


class EventTimes(Part):
    """CUDA event pairs of iterations, kept in a ring and read long after: the report waits each time."""

    def build(self) -> None:
        """Make the ring."""
        from torch.cuda import Event

        super().build()
        self.ring = [(Event(enable_timing=True), Event(enable_timing=True)) for _ in range(RING)]
        self.recorded = 0

    def iterate(self, clock: Clock) -> None:
        """Between two events."""
        start, end = self.ring[self.recorded % RING]
        start.record()
        super().iterate(clock)
        end.record()
        self.recorded += 1
        self.counts["recorded_events"] += 2

    def milliseconds(self) -> list[float]:
        """Device time of the last iterations, oldest first; waits for the device."""
        import torch

        torch.cuda.synchronize()
        kept = range(max(self.recorded - RING, 0), self.recorded)
        return [self.ring[i % RING][0].elapsed_time(self.ring[i % RING][1]) for i in kept]


class TorchProfiled(Part):
    """PyTorch's profiler with wait, warm-up and active iterations; traces go to the scratch folder."""

    profile: torch.profiler.profile | None

    def build(self) -> None:
        """Start it."""
        from torch import cuda, profiler

        super().build()
        cpu, gpu = profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.CUDA
        self.profile = profiler.profile(
            activities=[cpu, gpu] if cuda.is_available() else [cpu],
            schedule=profiler.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=self.traced,
            record_shapes=True,
            # the report's sample asks for stacks as well, which cost more than what is profiled
            profile_memory=True,
        )
        self.profile.start()
        self.complete = False
        self.endings.callback(self.stop_profiling)

    def traced(self, found: Any) -> None:
        """Write the trace."""
        found.export_chrome_trace(str(self.context.scratch_dir / "trace.json"))
        self.counts["traces"] += 1
        self.complete = True

    def iterate(self, clock: Clock) -> None:
        """Within a step of the profiler, which stops once the trace is there."""
        from torch.profiler import ProfilerAction

        super().iterate(clock)
        if self.profile is None:
            return
        recording = self.profile.current_action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        self.counts["profiled_steps"] += recording
        self.profile.step()
        if self.complete:
            self.stop_profiling()

    def stop_profiling(self) -> None:
        """Once."""
        profile, self.profile = self.profile, None
        if profile is not None:
            profile.stop()


METRICS = Toggle(
    "metrics",
    choices("every_step_item", "deferred", witness="host_reads"),
    "read metrics when they are logged",
)


class DeferredMetrics(Part):
    """Keeps tensors, and reads them together when a row is asked for. What no row shows is never read."""

    unread: tuple[Mapping[str, Tensor], Stacks] = ({}, {})
    sound: int | None = None
    """The last step whose losses were read, and were numbers."""

    def observe(self, terms: Mapping[str, Tensor], lower: Stacks) -> None:
        """Keep the tensors; nothing is computed and nothing read."""
        self.unread = (terms, lower)

    def check_losses(self) -> None:
        """Read the last losses, before they are saved or judged.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        if self.unread[0]:
            self.read({f"train/loss/{name}": loss for name, loss in self.unread[0].items()})

    def row(self, extra: Mapping[str, Tensor]) -> dict[str, float]:
        """The row of the last iteration by one read.

        Raises
        ------
        DivergedError
            A loss is no number.
        """
        from perfsweep.workloads.spd.training.loop import needed

        terms, lower = self.unread
        named = {f"train/loss/{name}": loss for name, loss in terms.items()}
        named |= {f"train/l0/{name}": count for name, count in needed(lower).items()}
        return self.read({**named, **extra})

    def read(self, named: Mapping[str, Tensor]) -> dict[str, float]:
        """Numbers [] by one read; losses among them are numbers."""
        import torch

        from perfsweep.workloads.spd.training.loop import refuse_nan

        values = torch.stack([value.detach().double() for value in named.values()]).tolist()
        found = dict(zip(named, values, strict=True))
        known = "none had been read" if self.sound is None else f"those of step {self.sound} were numbers"
        refuse_nan(self.step, found, f" (losses are read when they are logged or saved; before, {known})")
        self.sound = self.step
        return found


VARIANTS = (
    Variant(CHECKPOINT, {"async": BackgroundSaves}),
    Variant(WANDB_LOGGING),  # what a trial does with the rows
    Variant(GC, {"oom_only": CollectedWhenFull}, others=OtherCollections),
    Variant(FREE_EARLY, {"on": FreedEarly}),
    Variant(PROFILER, {"events": EventTimes, "torch": TorchProfiled}),
    Variant(METRICS, {"deferred": DeferredMetrics}),
)
