"""How rows become windows on the device: tokens, loaders, copies, and rows that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.training.toggles import DATA
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Numbers, Piece, Window

_TOKENISED: dict[str, Any] = {"requires": {"tokenise": ("pre", "cache")}}


class Pinned(Part):
    """Windows are copied out of pinned memory, where a loader pins them if there is one."""

    pins = True

    def moved(self, window: Window) -> Window:
        """The window on the device."""
        window = window if window.pinned else window.pin_memory()
        self.counts["pinned_batches"] += 1
        return super().moved(window)


class Unwaited(Part):
    """Copies that the host does not wait for."""

    def moved(self, window: Window) -> Window:
        """The window on its way to the device."""
        self.counts["unwaited_copies"] += 1
        return super().moved(window)

    def copied(self, tensor: Tensor) -> Tensor:
        """A tensor on its way to the device."""
        self.counts["host_copies"] += 1
        return tensor.to(self.device, non_blocking=True)


class Prefetched(Part):
    """The next window travels while this one is computed."""

    def windows(self, step: int) -> Iterator[Window]:
        """Windows on the device."""
        from perfsweep.workloads.latentwire.data.batches import Window
        from perfsweep.workloads.training import loading

        return loading.ahead(super().windows(step), self.device, self.counts, Window.tensors)


class Resident(Part):
    """All rows are on the device; a window is picked there by a list of its numbers."""

    def prepare_rows(self) -> None:
        """Put all rows on the device, padded once."""
        from perfsweep.workloads.latentwire.data.batches import Resident as Rows

        self.resident = Rows.of(self.corpus, self.shape, self.device)

    def windows(self, step: int) -> Iterator[Window]:
        """Windows of one epoch after the other."""
        from perfsweep.workloads.latentwire.data.batches import Numbers

        numbers = Numbers(self.corpus, self.shape, self.context.seed, step)
        epoch, skip = divmod(step, self.per_epoch)
        while True:
            yield from self.of_epoch(numbers.epoch(epoch)[skip:])
            epoch, skip = epoch + 1, 0

    def of_epoch(self, lists: list[list[int]]) -> Iterator[Window]:
        """Windows of these rows."""
        return map(self.window_of, lists)

    def window_of(self, numbers: list[int]) -> Window:
        """The window of a list of rows, its numbers and weights copied now."""
        import torch

        from perfsweep.workloads.latentwire.data.batches import share

        weights = [one.to(self.device) for one in self.collator.weights(numbers)]
        order = torch.tensor(share(numbers, self.shape)).to(self.device)
        self.counts["host_copies"] += 1 + len(weights)
        return self.picked(numbers, order, weights)

    def picked(self, numbers: list[int], order: Tensor, weights: list[Tensor]) -> Window:
        """The window of rows `order` [B] of the device, with weights [3, B, T] of each model."""
        from perfsweep.workloads.latentwire.data.batches import Window, share

        own, pieces = share(numbers, self.shape), []
        for first in range(0, len(own), self.shape.micro):
            part = slice(first, first + self.shape.micro)
            pieces.append(self._piece(order[part], tuple(own[part]), [one[:, part] for one in weights]))
        return Window(pieces, len(numbers))

    def _piece(self, order: Tensor, index: tuple[int, ...], weights: list[Tensor]) -> Piece:
        import torch

        missing = self.shape.micro - len(index) if self.shape.static else 0
        if missing > 0:
            index = index + index[:1] * missing
            order = torch.cat((order, order[:1].expand(missing)))
            weights = [torch.cat((w, w.new_zeros(w.shape[0], missing, w.shape[2])), dim=1) for w in weights]
        return self.resident.piece(order, index, weights, self.shape, self.wants_prompts())


class ResidentIndex(Resident):
    """An epoch's order and weights are put on the device at its start, and a step takes slices of them."""

    def of_epoch(self, lists: list[list[int]]) -> Iterator[Window]:
        """Windows of these rows."""
        import torch

        from perfsweep.workloads.latentwire.data.batches import share

        own = [share(window, self.shape) for window in lists]
        order = torch.tensor([number for window in own for number in window]).to(self.device)
        weights = [self.collator.weights(window) for window in lists]
        joined = [
            torch.cat([of_window[m] for of_window in weights], dim=1).to(self.device)
            for m in range(len(weights[0]))
        ]
        sizes = [len(window) for window in own]
        parts = [order.split(sizes), *(one.split(sizes, dim=1) for one in joined)]
        for window, row in zip(lists, zip(*parts, strict=True), strict=True):
            self.counts["loader_batches"] += 1
            yield self.picked(window, row[0], list(row[1:]))


class Loaded(Part):
    """A DataLoader makes windows."""

    workers = 0

    def host_windows(self, numbers: Numbers) -> Iterator[Window]:
        """Windows as they come, counted."""
        from perfsweep.workloads.latentwire.data.batches import load_windows

        for window in load_windows(self.collator, numbers, self.workers, self.pins):
            self.counts["loader_batches"] += 1
            self.counts["worker_batches"] += self.workers > 0
            yield window


class Workers(Part):
    """Processes of the DataLoader."""

    @property
    def workers(self) -> int:
        """How many."""
        return int(self.levels["num_workers"])


class TokenisedOnce(Part):
    """Ids of all rows are made before training."""

    def prepare_tokens(self) -> None:
        """Make them."""
        self.corpus.stored = [self.corpus.tokenised(layout) for layout in self.layouts]


class TokensCached(Part):
    """Ids of all rows are made once for all runs."""

    def prepare_tokens(self) -> None:
        """Make or read them."""
        self.corpus.stored = [self.corpus.cached(one, self.context.cache_dir) for one in self.layouts]


class KeptWindows(Part):
    """The first windows of the host come again and again."""

    def host_windows(self, numbers: Numbers) -> Iterator[Window]:
        """Windows that are kept."""
        from perfsweep.workloads.latentwire.data.batches import Window
        from perfsweep.workloads.training.loading import KeptBatches, repeated

        return repeated(super().host_windows(numbers), KeptBatches(Window.tensors, self.counts))


VARIANTS = (
    Variant(shared.pin_memory(every={"witness": "pinned_batches"}, source="1"), {"on": Pinned}),
    Variant(shared.non_blocking(every={"witness": "unwaited_copies"}, source="1"), {"on": Unwaited}),
    Variant(shared.prefetch(every={"witness": "prefetched_batches"}, source="1"), {"stream": Prefetched}),
    Variant(
        Toggle(
            "resident_data",
            choices("off", "on", witness="host_copies", **_TOKENISED),
            "keep all tokens on the device",
            "1",
        ),
        {"on": Resident},
    ),
    Variant(
        Toggle(
            "loader",
            (
                Level("index"),
                Level("dataloader", conflicts={"resident_data": ("on",)}, witness="loader_batches"),
                Level("resident_index", requires={"resident_data": ("on",)}, witness="loader_batches"),
            ),
            "pick rows by an index list, by a DataLoader, or on the device",
            "2",
        ),
        {"dataloader": Loaded, "resident_index": ResidentIndex},
    ),
    Variant(
        shared.num_workers(
            every={"requires": {"loader": ("dataloader",)}, "witness": "worker_batches"}, source="2"
        ),
        others=Workers,
    ),
    Variant(
        Toggle(
            "tokenise",
            choices("per_batch", "pre", "cache", witness="rows_tokenised"),
            "tokenise in every step, once before training, or once for all runs",
            "3",
        ),
        {"pre": TokenisedOnce, "cache": TokensCached},
    ),
)
KEPT = Variant(DATA, {"cached": KeptWindows})
"""Acts on request alone."""
