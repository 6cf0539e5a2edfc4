"""What passes of a frozen model cost by their formulas, and its rotary tables."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from perfsweep.workloads.latentwire.maths.attention import eager
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.passes import Rows
from perfsweep.workloads.latentwire.presets import LMConfig

LM = LMConfig(vocab_size=11, d_model=8, n_layers=3, n_heads=2, n_kv_heads=1, head_dim=4, d_ff=12)
B, S = 2, 5


def build(attend=eager, recompute: str = "off", **path) -> CausalLM:
    made = CausalLM(LM, torch.Generator().manual_seed(0), torch.float64)
    made.path = Path(LayerPath(attend, recompute=recompute), **path)
    return made


def tokens(trained: bool = False) -> torch.Tensor:
    return torch.ones(B, S, 8, dtype=torch.float64, requires_grad=trained)


def counted(lm: CausalLM, **how) -> Counter[str]:
    lm.run(tokens(how.pop("trained", False)), **how)
    return lm.chosen.counts


BODY = B * S * (LM.attention_parameters + LM.mlp_parameters)


@pytest.mark.parametrize(
    ("trained", "recompute", "per_product"),
    [(False, "off", 2), (True, "off", 4), (True, "on", 6), (True, "selective", 4), (False, "on", 2)],
)
def test_products_are_counted_forward_backward_and_once_more_where_they_are_recomputed(
    trained: bool, recompute: str, per_product: int
) -> None:
    counts = counted(build(recompute=recompute), trained=trained)
    assert counts["lm_flops"] == per_product * 3 * BODY
    assert counts["lm_positions"] == B * S


def test_without_gradients_nothing_runs_backward() -> None:
    with torch.no_grad():
        assert counted(build(), trained=True)["lm_flops"] == 2 * 3 * BODY


@pytest.mark.parametrize(
    ("positions", "read"), [(slice(3, None), 2), (slice(None), 5), (torch.tensor([[0, 4], [1, 1]]), 2)]
)
def test_rows_that_nobody_reads_are_left_out_of_the_last_layer(positions, read: int) -> None:
    counts = counted(build(), rows=Rows(positions))
    assert counts["lm_flops"] == 2 * (3 * BODY - B * (S - read) * LM.pruned_parameters)


@pytest.mark.parametrize(("recompute", "parts"), [("off", 0), ("selective", 3), ("on", 3)])
def test_parts_are_computed_again_where_they_are_trained(recompute: str, parts: int, monkeypatch) -> None:
    again = []

    def noted(function, *given, **how):
        again.append(function)
        return function(*given)

    monkeypatch.setattr("perfsweep.workloads.latentwire.maths.lm.checkpoint", noted)
    made = build(recompute=recompute)
    for context, trained in ((torch.enable_grad, parts), (torch.no_grad, 0)):
        with context():
            made.run(tokens(trained=True))
        assert len(again) == trained
        again.clear()
