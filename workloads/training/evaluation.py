"""Figures of held-out rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

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
