"""How batches come from rows and reach the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Levels, Toggle
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.variants.part import Part
from perfsweep.workloads.training.toggles import DATA
from perfsweep.workloads.variant import Variant

if TYPE_CHECKING:
    from perfsweep.workloads.spd.data.loading import Feed, Loaded, Plan

PIN_MEMORY = shared.pin_memory(every={"witness": "pinned_batches"}, source="1.1")


class Pinned(Part):
    """Batches lie in pinned memory."""

    pinned = True


def _unsharded(config: SpdConfig, levels: Levels) -> str | None:
    duplicates = config.iterable and not config.sharded
    return (
        "each worker would repeat all of an iterable data set that is not sharded (workload.sharded)"
        if duplicates
        else None
    )


NUM_WORKERS = shared.num_workers(
    0, 2, 4, 8, every={"refused": _unsharded, "witness": "worker_batches"}, source="1.2"
)


class Workers(Part):
    """Processes that load."""

    @property
    def workers(self) -> int:
        """As many as the level says."""
        return int(self.levels["num_workers"])


NON_BLOCKING = shared.non_blocking(every={"witness": "unwaited_copies"}, source="3.1")


class Unwaited(Part):
    """Copies are not waited for."""

    non_blocking = True


PREFETCH = shared.prefetch(every={"witness": "prefetched_batches"}, source="3.2")


class Ahead(Part):
    """The next batch is on its way while this one is computed."""

    def moved(self, batches: Iterator[Loaded], start: int) -> Feed:
        """Fetched and copied ahead."""
        from perfsweep.workloads.spd.data.loading import FeedAhead

        return FeedAhead(batches, self.mover(), start)


LOADER = Toggle(
    "loader",
    (
        Level("torch"),
        Level("memmap_batched", witness="row_fetches"),
        Level(
            "gpu_resident",
            requires={
                "pin_memory": ("off",),
                "num_workers": (0,),
                "non_blocking": ("off",),
                "prefetch": ("off",),
            },
            unsupported=shared.needs_cuda,
            witness="row_fetches",
        ),
    ),
    "fetch rows one by one, by the batch from a mapped file, or from the device",
)


class MappedFile(Part):
    """A whole batch by one read."""

    def batches(self, plan: Plan) -> Iterator[Loaded]:
        """From the mapped file."""
        from perfsweep.workloads.spd.data.loading import by_mapped_file

        return by_mapped_file(self.rows, plan, self.pinned)


class OnDevice(Part):
    """All rows are on the device."""

    def batches(self, plan: Plan) -> Iterator[Loaded]:
        """Picked there."""
        from perfsweep.workloads.spd.data.loading import on_device

        return on_device(self.rows, plan, self.device)


class SameBatches(Part):
    """The first batches again and again, of the toggle `data`, which every workload has on request."""

    def moved(self, batches: Iterator[Loaded], start: int) -> Feed:
        """The loader ends with the batches that are kept."""
        from perfsweep.workloads.training.loading import KeptBatches, repeated

        kept: KeptBatches[Loaded] = KeptBatches(lambda one: [one.values], self.counts)
        return super().moved(repeated(batches, kept), start)


ON_REQUEST = (Variant(DATA, {"cached": SameBatches}),)
VARIANTS = (
    Variant(PIN_MEMORY, {"on": Pinned}),
    Variant(NUM_WORKERS, others=Workers),
    Variant(NON_BLOCKING, {"on": Unwaited}),
    Variant(PREFETCH, {"stream": Ahead}),
    Variant(LOADER, {"memmap_batched": MappedFile, "gpu_resident": OnDevice}),
)
