"""What a fit is worth beside the share of a class alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.workloads.probe1d.data.problem import Labels
from perfsweep.workloads.probe1d.maths.fit_quality import intercept_only_loss, summarise


def test_a_class_is_explained_by_its_best_latent_of_training_on_held_out_rows() -> None:
    loss = np.array([[0.5, 0.2, 0.1], [0.4, 0.3, 0.1]])
    held_out = np.array([[0.1, 0.5, 0.3], [0.6, 0.4, 0.2]])
    summary = summarise(loss, held_out, np.array([0.8, 0.25, 1e-7]))
    assert summary.best_latent.tolist() == [1, 0, 0]
    assert summary.loss.tolist() == [0.6, 0.5, 0.3]
    assert summary.explained.tolist() == pytest.approx([0.25, -1.0, 0.0])


def test_the_prior_alone_costs_the_cross_entropy_of_the_share() -> None:
    rows: Any = SimpleNamespace(
        labels=Labels(2, ids=torch.tensor([0, 1, 1, 1])), grid=torch.arange(2), x=SimpleNamespace(rows=4)
    )
    found = intercept_only_loss(torch.tensor([0.0, math.log(3)], dtype=torch.float64), rows)
    fair = -(0.25 * math.log(0.5) + 0.75 * math.log(0.5))
    own = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.tolist() == pytest.approx([fair, own])
