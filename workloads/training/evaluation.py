"""What a training reports: the losses of its iterations, and figures of held-out rows."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from perfsweep.workloads.training.batches import arguments, collate, grouped, moved, rows_of
from perfsweep.workloads.training.parts import Parts
from perfsweep.workloads.training.sources import rows_in


class Evaluation:
    """Evaluates all held-out rows at once, from the device, or batch after batch, each loaded again."""

    def __init__(self, parts: Parts, device: torch.device) -> None:
        self._parts, self._device = parts, device
        self._resident: tuple[Any, ...] = ()
        if parts.held_out is not None and not parts.evaluate_batch:
            self._resident = arguments(self._on_device(list(rows_in(parts.held_out))))

    @torch.no_grad()
    def figures(self, model: nn.Module, autocast: AbstractContextManager[Any]) -> dict[str, float]:
        """Evaluate `model`, uncompiled: other shapes, and no gradients, would cause another compilation."""
        evaluate = self._parts.evaluate
        if evaluate is None:
            return {}
        with autocast:
            if self._parts.held_out is None or not self._parts.evaluate_batch:
                return dict(evaluate(model, *self._resident))
            batches = map(self._on_device, grouped(rows_in(self._parts.held_out), self._parts.evaluate_batch))
            return _mean((rows_of(batch), evaluate(model, *arguments(batch))) for batch in batches)

    def _on_device(self, rows: list[Any]) -> Any:
        batch = (self._parts.collate or collate)(rows)
        return moved(batch, lambda tensor: tensor.to(self._device))


def _mean(of_batches: Iterator[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Average the figures of batches, weighted by their rows."""
    sums, rows = defaultdict[str, float](float), 0
    for count, figures in of_batches:
        rows += count
        for name, value in figures.items():
            sums[name] += count * value
    return {name: total / rows for name, total in sums.items()}


KEPT = 1000  # enough for evidence; the losses of a long training must not fill memory


class Row(NamedTuple):
    """The loss of one iteration, counted from 1, and its terms by name."""

    iteration: int
    loss: float
    terms: Mapping[str, float] = MappingProxyType({})


class LateLosses:
    """Gives each iteration's loss to the host one iteration late.

    ``loss.item()`` right after the backward pass would make the host wait until the device has finished. The
    next iteration's kernels would then be launched too late, and the device would idle. One iteration later
    the value is on the host without waiting.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()  # of the terms that come after each loss
        self.history: deque[Tensor] = deque(maxlen=KEPT)  # [] each, on the device
        self._travelling: tuple[int, Tensor, float, torch.cuda.Event | None] | None = None

    def push(self, iteration: int, loss: Tensor, share: float = 1.0) -> Row | None:
        """Start the copy of this iteration's `loss`, [] or [1 + terms]; return the previous row, if any.

        If the loss is only the part of this rank's `share` of the rows, the row has the mean over that share.
        """
        self.history.append(loss[0] if self.names else loss)
        previous = self.take()
        # From CUDA this is an asynchronous copy to pinned memory; on CPU it is the tensor itself.
        on_its_way, arrived = loss.to("cpu", non_blocking=True), _mark() if loss.is_cuda else None
        self._travelling = iteration, on_its_way, share, arrived
        return previous

    def take(self) -> Row | None:
        """Wait for the loss that is being copied, and return its row; None if there is none."""
        if self._travelling is None:
            return None
        iteration, loss, share, arrived = self._travelling
        self._travelling = None
        if arrived is not None:
            arrived.synchronize()
        value, *terms = [one / share for one in torch.atleast_1d(loss).tolist()]
        return Row(iteration, value, dict(zip(self.names, terms, strict=True)))


def _mark() -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record()
    return event
