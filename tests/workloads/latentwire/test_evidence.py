"""Figures that claims speak of and that are measured apart from the training."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from perfsweep.workloads.latentwire import evidence
from perfsweep.workloads.latentwire.evidence import kernel_speedup
from perfsweep.workloads.latentwire.maths.attention import KERNELS, Allowed
from perfsweep.workloads.latentwire.presets import LMS, PRESETS

LM = LMS[PRESETS["test"].lms[0]]


@pytest.mark.parametrize("kernel", ["sdpa", "flash"])
def test_attention_is_timed_by_itself_at_the_models_shape(kernel: str, monkeypatch) -> None:
    ticks = iter((3.0, 10.0, 3.0, 5.0))
    monkeypatch.setattr(evidence, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    shapes = []

    def watched(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: Allowed) -> torch.Tensor:
        shapes.append((tuple(q.shape), tuple(k.shape), allowed.causal))
        return KERNELS[kernel](q, k, v, allowed)

    ratio = kernel_speedup(watched, LM, 2, 8, torch.device("cpu"), torch.float32)
    assert ratio == 7 / 2 and len(shapes) == 20
    assert set(shapes) == {((2, LM.n_heads, 8, LM.head_dim), (2, LM.n_kv_heads, 8, LM.head_dim), True)}


@pytest.mark.workloads
def test_evidence_has_the_speed_of_attention_where_it_is_not_the_baselines(evidence_of) -> None:
    fused, explicit = (evidence_of({"attn": attn}).numbers for attn in ("sdpa", "eager"))
    assert fused["attention_speedup"] > 0
    assert "attention_speedup" not in explicit
