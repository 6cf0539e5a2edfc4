"""Rows of a slab: how many, found by a search or not, what fills the last one, what warms up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.prover.variants.part import REORDERED, Part, reordered
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from perfsweep.workloads.prover.maths.episodes import Rows

_SLABS: dict[str, Any] = {"conflicts": {"slab_size": ("all",)}}

SLAB_SIZE = shared.slab_size(
    *("all", 512, "auto"),
    every={"bounds": REORDERED, "witness": "slabs"},
    # The search may well choose one slab for everything; that it searched shows in its steps.
    each={"auto": {"requires": {"slab_search": ("ladder",)}, "witness": "probe_steps"}},
    source="Issue 1",
)


class SearchedSize(Part):
    """As many rows as take least time for each."""

    def slab_size(self, search: Callable[[], int]) -> int:
        """What the search finds."""
        return search()


PAD_TO_SLAB = Toggle(
    "pad_to_slab",
    (Level("off"), reordered("done_row", "padded_rows", **_SLABS)),
    "fill the last slab with finished rows",
    "Issues 1 and 2",
)


class PaddedSlab(Part):
    """All slabs have one size."""

    def filled_up(self, rows: Rows, missing: int) -> Rows:
        """With finished rows."""
        return rows.joined([rows, self.finished_rows(missing)])


WARMUP = Toggle(
    "warmup",
    choices("tiny", "exact", witness="warmup_rows", **_SLABS),
    "warm up with two rows, or with the size and buffers that will be used",
    "Issue 2",
)


class ExactWarmup(Part):
    """Memory, libraries and code are there when the job begins."""

    def warm_up_sizes(self, slab: int | None) -> list[int]:
        """Every size that is to come."""
        return super().warm_up_sizes(slab) if slab is None else self.step_sizes(slab)


SLAB_SEARCH = Toggle(
    "slab_search",
    (Level("fixed512"), reordered("ladder", "probe_steps", requires={"slab_size": ("auto",)})),
    "probe a ladder of slab sizes for a few steps each",
    "Issue 3",
)

VARIANTS = (
    Variant(SLAB_SIZE, {"auto": SearchedSize}),
    Variant(PAD_TO_SLAB, {"done_row": PaddedSlab}),
    Variant(WARMUP, {"exact": ExactWarmup}),
    Variant(SLAB_SEARCH),
)
