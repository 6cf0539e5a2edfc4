"""Figures of held-out rows, all at once or batch after batch."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from torch import nn

from perfsweep.workloads.training.evaluation import Evaluation
from perfsweep.workloads.training.parts import Parts

ROWS = [torch.tensor([float(number)]) for number in (1, 2, 3, 4, 10)]


def evaluated(evaluate: Any, held_out: Any = ROWS, **fields: Any) -> dict[str, float]:
    parts = Parts(
        nn.Linear(1, 1),
        data=[1],
        loss=lambda *_: torch.ones(()),
        held_out=held_out,
        evaluate=evaluate,
        **fields,
    )
    evaluation = Evaluation(parts, torch.device("cpu"))
    return evaluation.figures(parts.model, contextlib.nullcontext())


@pytest.mark.parametrize(("batch", "asked"), [(0, [5]), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_figures_are_averaged_over_rows_however_these_are_cut(batch: int, asked: list[int]) -> None:
    seen: list[int] = []

    def mean(model: nn.Module, rows: torch.Tensor) -> dict[str, float]:
        assert isinstance(model, nn.Linear)
        assert not torch.is_grad_enabled()
        seen.append(len(rows))
        return {"mean": rows.mean().item(), "one": 1.0}

    found = evaluated(mean, evaluate_batch=batch)
    assert found == pytest.approx({"mean": 4.0, "one": 1.0})
    assert seen == asked


@pytest.mark.parametrize("batch", [0, 2])
def test_rows_are_put_together_as_the_training_says(batch: int) -> None:
    def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"x": 2 * torch.cat(rows)}

    found = evaluated(
        lambda model, rows: {"mean": rows["x"].mean().item()}, collate=collate, evaluate_batch=batch
    )
    assert found["mean"] == pytest.approx(8.0)


def test_an_evaluation_may_bring_its_own_rows_or_not_exist() -> None:
    assert evaluated(lambda model: {"own": 3.0}, held_out=None) == {"own": 3.0}
    assert evaluated(None) == {}
