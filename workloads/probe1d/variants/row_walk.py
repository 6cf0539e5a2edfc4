"""How a pass walks over activations stored by row: chunks, row indices, casts, and classes at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Numbers, Toggle
from perfsweep.workloads.probe1d.claims import IDEAS, SUSPECTED
from perfsweep.workloads.probe1d.variants.part import Part
from perfsweep.workloads.probe1d.variants.participation import DAMPED
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from perfsweep.workloads.probe1d.data.problem import Csr
    from perfsweep.workloads.probe1d.maths.buckets import Chunker

CACHE_BYTES = 2**21
"""Second-level cache of one core that chunk_events=auto fills; 2 MiB is common on servers."""
GPU_CHUNK_EVENTS = 2**22

CACHE_ROW_IDX = Toggle(
    "cache_row_idx",
    choices("off", "on", requires=DAMPED, witness="row_index_builds"),
    "build chunk plan and row indices once instead of on every pass",
    f"{SUSPECTED}, {IDEAS}",
)


class CachedRows(Part):
    """Boundaries and row indices are made once."""

    def chunker(self, x: Csr, classes: int) -> Chunker:
        """Those of all passes."""
        return self.row_chunks(x, self.chunk_limit(classes, x.values.is_cuda))

    def row_chunks(self, x: Csr, limit: int) -> Chunker:
        """Those of the walk that counts predictions too."""
        from perfsweep.workloads.probe1d.maths.buckets import CachedChunks

        return CachedChunks(x, limit, self.counts)


CAST_ONCE = Toggle(
    "cast_once",
    choices("off", "on", witness="casts"),
    "cast stored values to the compute type once instead of on every pass",
    f"{SUSPECTED}, {IDEAS}",
)


class CastOnce(Part):
    """Passes find values in their type."""

    cast_once = True


CHUNK_EVENTS = Toggle(
    "chunk_events",
    (
        Level(32768),
        *(Level(size, requires=DAMPED, witness="chunks") for size in (2**18, 2**20, 2**22)),
        Level("auto", requires=DAMPED, witness="chunks"),
    ),
    "events per chunk of a pass over activations stored by row",
    IDEAS,
    numbers=Numbers(32, like=Level(0, requires=DAMPED, witness="chunks")),
)


class ChunksThatFit(Part):
    """One chunk's temporaries stay in the cache of a core."""

    def chunk_limit(self, classes: int, cuda: bool = False) -> int:
        """As many events as fit; on a GPU enough to fill it."""
        from perfsweep.workloads.probe1d.reference import CHUNK_ARRAYS

        if cuda:
            return GPU_CHUNK_EVENTS
        per_event = CHUNK_ARRAYS * self.slab_width(classes) * self.precision.compute.itemsize
        return max(1024, CACHE_BYTES // per_event)


VARIANTS = (
    Variant(CACHE_ROW_IDX, {"on": CachedRows}),
    Variant(CAST_ONCE, {"on": CastOnce}),
    Variant(CHUNK_EVENTS, {"auto": ChunksThatFit}),
    Variant(shared.slab_size(8, 1, 4, 32, "all", source=IDEAS, every={"witness": "slabs"})),
)
