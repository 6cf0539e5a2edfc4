"""A fixed piece of work before each timing trial, by which a slow machine is told from slow code."""

from __future__ import annotations

import torch

from perfsweep.pipelines.trial import scene


def test_the_work_is_the_same_each_time_whatever_numbers_are_by_default(monkeypatch) -> None:
    products = []
    multiply = torch.mm
    monkeypatch.setattr(
        torch, "mm", lambda *a, **k: products.append((a[0].shape, a[0].dtype)) or multiply(*a, **k)
    )
    scene.work_ns()
    first = list(products)
    torch.set_default_dtype(torch.float64)  # as somebody's own module does
    try:
        scene.work_ns()
    finally:
        torch.set_default_dtype(torch.float32)
    assert products == [*first, *first]
