"""True and false positives and negatives of every pair at mu > threshold.

Baseline: one more pass over all events that adds up float32 ones, which stops counting at 2^24. Search: mu is
monotone in x, so the predicted positives of a pair are one end of its latent's sorted values; two binary
searches that evaluate the predicate itself give exact integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from perfsweep.workloads.probe1d.counters import Counts
from perfsweep.workloads.probe1d.data.problem import Csr, Labels
from perfsweep.workloads.probe1d.maths.buckets import Chunker
from perfsweep.workloads.probe1d.maths.ill_conditioned import events_of

THRESHOLD = 0.5


@dataclass(frozen=True)
class Confusion:
    """Counts [L, c]."""

    tp: Tensor
    fp: Tensor
    tn: Tensor
    fn: Tensor


def positive(b: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """The predicate itself: sigmoid(b + w x) > THRESHOLD."""
    return torch.sigmoid(b + w * x) > THRESHOLD


def from_positives(predicted: Tensor, hit: Tensor, positives: Tensor, rows: int) -> Confusion:
    """All four counts from predicted positives, true positives, positive rows [c] and the number of rows."""
    fp, fn = predicted - hit, positives - hit
    return Confusion(hit, fp, rows - hit - fp - fn, fn)


def zero_group(b: Tensor, zeros: Tensor, zero_positives: Tensor) -> tuple[Tensor, Tensor]:
    """Predicted and true positives among rows where the latent is silent: all of them or none."""
    fires = positive(b, torch.zeros_like(b), torch.zeros_like(b))
    nothing = torch.zeros_like(zero_positives)
    return torch.where(fires, zeros, nothing), torch.where(fires, zero_positives, nothing)


def confusion_by_events(
    x: Csr, labels: Tensor, positives: Tensor, chunker: Chunker, b: Tensor, w: Tensor, counts: Counts
) -> Confusion:
    """One labelled pass, counts float32. `labels` [N, c]; b, w float32 [L, c]; `positives` [c]."""
    shape = b.shape
    predicted, hit, seen_hits, seen = (
        torch.zeros(shape, dtype=torch.float32, device=b.device) for _ in range(4)
    )
    for chunk in chunker():
        part = slice(chunk.start, chunk.stop)
        columns, values = x.indices[part], x.values[part].float().unsqueeze(1)
        assert chunk.row_index is not None
        y = labels.index_select(0, chunk.row_index).float()
        counts.add("label_gathers")
        counts.add("confusion_events", y.numel())
        fires = positive(b.index_select(0, columns), w.index_select(0, columns), values).float()
        for into, terms in ((predicted, fires), (hit, fires * y), (seen_hits, y), (seen, torch.ones_like(y))):
            into.index_add_(0, columns, terms)
    zeros, zero_hits = zero_group(b, x.rows - seen, positives.float() - seen_hits)
    return from_positives((predicted + zeros).long(), (hit + zero_hits).long(), positives.long(), x.rows)


@dataclass(frozen=True)
class SortedEvents:
    """Values in ascending order within each latent, and within each (latent, class column).

    `latent_starts` int64 [L + 1]; `group_starts` int64 [L * C + 1] over groups in order latent-major.
    """

    values: Tensor
    latent_starts: Tensor
    group_values: Tensor
    group_starts: Tensor
    classes: int


def sort_events(x: Csr, labels: Labels, grid: Tensor) -> SortedEvents:
    """Sort once; every later query is two binary searches per pair."""
    # Two stable sorts, by value and then by latent, leave values ascending within each latent.
    values, order = torch.sort(x.values.float())
    latent = x.indices[order]
    latent, by_latent = torch.sort(latent, stable=True)
    order, values = order[by_latent], values[by_latent]
    starts = _starts(latent, x.latents)
    row = x.row_index()[order]
    width = grid.numel()
    if labels.multi is not None:
        event, column = labels.multi.index_select(1, grid)[row].nonzero(as_tuple=True)
    else:
        position = labels.positions(grid)[row]
        event = (position >= 0).nonzero().squeeze(1)
        column = position[event]
    group, by_group = torch.sort(latent[event] * width + column, stable=True)
    return SortedEvents(values, starts, values[event][by_group], _starts(group, x.latents * width), width)


def _starts(sorted_keys: Tensor, size: int) -> Tensor:
    ends = torch.bincount(sorted_keys, minlength=size).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends])


def confusion_by_search(
    events: SortedEvents, columns: Tensor, rows: int, positives: Tensor, b: Tensor, w: Tensor, counts: Counts
) -> Confusion:
    """Two binary searches per pair. b, w float32 [L, c] for the classes at `columns`; `positives` [c]."""
    latents = b.shape[0]
    start = events.latent_starts[:-1, None].expand(b.shape)
    stop = events.latent_starts[1:, None].expand(b.shape)
    predicted = fired(events.values, start, stop, b, w)
    group = torch.arange(latents, device=b.device)[:, None] * events.classes + columns
    group_start, group_stop = events.group_starts[group], events.group_starts[group + 1]
    hit = fired(events.group_values, group_start, group_stop, b, w)
    counts.add("confusion_searches", 2 * b.numel())
    zeros, zero_hits = zero_group(b, rows - (stop - start), positives - (group_stop - group_start))
    return from_positives(predicted + zeros, hit + zero_hits, positives, rows)


def fired(values: Tensor, start: Tensor, stop: Tensor, b: Tensor, w: Tensor) -> Tensor:
    """How many of the ascending values[start:stop] fulfil the predicate, int64 in the shape of b.

    For w > 0 the predicate turns from false to true along the run, for w < 0 from true to false; the search
    looks for the turning point, on runs of their own length each. w = 0 is the constant predicate, where
    either view holds.
    """
    if not values.numel():
        return torch.zeros_like(start)
    rising = w >= 0
    low, high = start.clone(), stop.clone()
    longest = int((stop - start).max())
    # As many halvings as the longest run needs; shorter runs no longer change once low meets high.
    for _ in range(longest.bit_length()):
        middle = (low + high) // 2
        x = values[middle.clamp(max=values.numel() - 1)]
        past = positive(b, w, x) == rising
        open_run = low < high
        high = torch.where(open_run & past, middle, high)
        low = torch.where(open_run & ~past, middle + 1, low)
    return torch.where(rising, stop - low, low - start)


class ScannedConfusion:
    """Counts by one more pass over all events for every slab, which brings predictions and labels together.

    Parameters
    ----------
    dense : label matrix [N, C], where the solver's passes have one
    chunker : makes the walk over events again for each slab
    """

    def __init__(
        self,
        x: Csr,
        labels: Labels,
        grid: Tensor,
        dense: Tensor | None,
        chunker: Callable[[], Chunker],
        counts: Counts,
    ) -> None:
        self.x, self.labels, self.grid, self.dense = x, labels, grid, dense
        self.chunker, self.counts = chunker, counts

    def __call__(self, columns: Tensor, positives: Tensor, b: Tensor, w: Tensor) -> Confusion:
        """Counts of the classes at `columns`."""
        labels = self.labels.dense(self.grid[columns]) if self.dense is None else self.dense[:, columns]
        return confusion_by_events(
            self.x, labels, positives, self.chunker(), b.float(), w.float(), self.counts
        )


class SearchedConfusion:
    """Counts by binary search in values that are sorted once, when the first slab asks.

    The `ill` latents int64 [n], of which float32 tells too little, are counted in float64, event by event.
    """

    def __init__(self, x: Csr, labels: Labels, grid: Tensor, counts: Counts, ill: Tensor) -> None:
        self.x, self.labels, self.grid, self.counts, self.ill = x, labels, grid, counts, ill
        self.events: SortedEvents | None = None

    def __call__(self, columns: Tensor, positives: Tensor, b: Tensor, w: Tensor) -> Confusion:
        """Counts of the classes at `columns`."""
        if self.events is None:
            self.events = sort_events(self.x, self.labels, self.grid)
        rows, near_b, near_w = self.x.rows, b.float(), w.float()
        found = confusion_by_search(self.events, columns, rows, positives, near_b, near_w, self.counts)
        events = events_of(self.x, self.labels, self.grid[columns], self.ill)
        for latent, (x, y) in zip(self.ill.tolist(), events, strict=True):
            exact = _counted(b[latent], w[latent], x, y.bool(), positives, rows)
            for name, counts in vars(found).items():
                counts[latent] = getattr(exact, name)
        return found


def _counted(b: Tensor, w: Tensor, x: Tensor, y: Tensor, positives: Tensor, rows: int) -> Confusion:
    """Counts [c] of one latent at b, w [c] from its values [n, 1] and labels bool [n, c]."""
    fires = positive(b, w, x)
    zeros, zero_hits = zero_group(b, torch.full_like(positives, rows - len(x)), positives - y.sum(0))
    return from_positives(fires.sum(0) + zeros, (fires & y).sum(0) + zero_hits, positives, rows)
