"""Windows on their way to the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from perfsweep.workloads.latentwire.data.batches import (
    Collator,
    Numbers,
    Piece,
    Resident,
    Shape,
    Window,
    share,
)

Wants = Callable[[], bool]
"""Whether teacher prompts are needed still."""


class Mover:
    """Copies every tensor of a window to the device by itself."""

    def __init__(self, device: torch.device, non_blocking: bool, pin: bool, counts: Counter[str]) -> None:
        self._device, self._non_blocking, self._pin, self._counts = device, non_blocking, pin, counts

    def __call__(self, window: Window) -> Window:
        """The window on the device."""
        if self._pin and not window.pinned:
            window = window.pin_memory()
        self._counts["pinned_batches"] += window.pinned
        self._counts["unwaited_copies"] += self._non_blocking
        return Window([piece.map(self._moved) for piece in window.pieces], window.examples, window.tokenised)

    def _moved(self, tensor: Tensor) -> Tensor:
        self._counts["host_copies"] += 1
        return tensor.to(self._device, non_blocking=self._non_blocking)


def counted(windows: Iterator[Window], counts: Counter[str], *names: str) -> Iterator[Window]:
    """Windows as they come, each counted under every name."""
    for window in windows:
        counts.update(names)
        yield window


class Picker:
    """Windows of rows that are on the device already.

    With `by_list` row numbers come as a Python list for every piece; else a whole epoch's order and weights
    are put on the device at its start, and a step only takes slices of them.
    """

    def __init__(
        self,
        resident: Resident,
        collator: Collator,
        device: torch.device,
        by_list: bool,
        wants: Wants,
        counts: Counter[str],
    ):
        self._resident, self._collator, self._device = resident, collator, device
        self._by_list, self._wants, self._counts = by_list, wants, counts

    def windows(self, numbers: Numbers, start: int, per_epoch: int) -> Iterator[Window]:
        """Windows without end from step `start` on."""
        epoch, skip = divmod(start, per_epoch)
        while True:
            lists = numbers.epoch(epoch)
            prepared = None if self._by_list else self._prepare(lists)
            for number in range(skip, len(lists)):
                if prepared is None:
                    yield self.of_list(lists[number])
                else:
                    self._counts["loader_batches"] += 1
                    yield self._window(lists[number], *prepared[number])
            epoch, skip = epoch + 1, 0

    def _prepare(self, lists: list[list[int]]) -> list[tuple[Tensor, list[Tensor]]]:
        """Row numbers [B] and each model's weights [3, B, T] of every window, in one copy each."""
        shape = self._collator.shape
        own = [share(window, shape) for window in lists]
        order = torch.tensor([number for window in own for number in window]).to(self._device)
        weights = [self._collator.weights(window) for window in lists]
        joined = [
            torch.cat([of_window[m] for of_window in weights], dim=1).to(self._device)
            for m in range(len(weights[0]))
        ]
        sizes = [len(window) for window in own]
        parts = [order.split(sizes), *(one.split(sizes, dim=1) for one in joined)]
        return [(row[0], list(row[1:])) for row in zip(*parts, strict=True)]

    def of_list(self, window: list[int]) -> Window:
        """The window of a list of rows, its numbers and weights copied now."""
        weights = [one.to(self._device) for one in self._collator.weights(window)]
        order = torch.tensor(share(window, self._collator.shape)).to(self._device)
        self._counts["host_copies"] += 1 + len(weights)
        return self._window(window, order, weights)

    def _window(self, window: list[int], order: Tensor, weights: list[Tensor]) -> Window:
        shape, own = self._collator.shape, share(window, self._collator.shape)
        pieces = []
        for first in range(0, len(own), shape.micro):
            part = slice(first, first + shape.micro)
            pieces.append(
                self._piece(order[part], tuple(own[part]), [one[:, part] for one in weights], shape)
            )
        return Window(pieces, len(window))

    def _piece(self, order: Tensor, index: tuple[int, ...], weights: list[Tensor], shape: Shape) -> Piece:
        missing = shape.micro - len(index) if shape.static else 0
        if missing > 0:
            index = index + index[:1] * missing
            order = torch.cat((order, order[:1].expand(missing)))
            weights = [torch.cat((w, w.new_zeros(w.shape[0], missing, w.shape[2])), dim=1) for w in weights]
        return self._resident.piece(order, index, weights, shape, self._wants())
