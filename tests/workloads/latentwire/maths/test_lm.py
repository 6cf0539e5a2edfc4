"""What passes of a frozen model cost by their formulas, and its rotary tables."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from perfsweep.workloads.latentwire.maths import lm
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


def counted(made: CausalLM, **how) -> Counter[str]:
    made.run(tokens(how.pop("trained", False)), **how)
    return made.chosen.counts


BODY = B * S * (LM.attention_parameters + LM.mlp_parameters)


@pytest.mark.parametrize(
    ("trained", "recompute", "per_product", "again"),
    [
        *((False, "off", 2, 0), (True, "off", 4, 0), (True, "on", 6, 3)),
        *((True, "selective", 4, 3), (False, "on", 2, 3)),
    ],
)
def test_products_are_counted_forward_backward_and_once_more_where_they_are_recomputed(
    trained: bool, recompute: str, per_product: int, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    right = lm.checkpoint
    monkeypatch.setattr(lm, "checkpoint", lambda *given, **how: kept.append(given) or right(*given, **how))
    counts = counted(build(recompute=recompute), trained=trained)
    assert counts["lm_flops"] == per_product * 3 * BODY
    assert counts["lm_positions"] == B * S
    assert len(kept) == again


@pytest.mark.parametrize(
    ("hidden", "table", "passes"), [(False, False, 2), (True, False, 4), (True, True, 6)]
)
def test_the_head_counts_its_product_and_a_gradient_for_each_side_that_has_one(
    hidden: bool, table: bool, passes: int
) -> None:
    made = build()
    made.table.requires_grad_(table)
    made.logits(torch.zeros(B, S, LM.d_model, dtype=torch.float64).requires_grad_(hidden))
    assert made.chosen.counts["lm_flops"] == passes * B * S * LM.head_parameters
    assert made.chosen.counts["head_rows"] == B * S


@pytest.mark.parametrize("recompute", ["off", "selective", "on"])
def test_without_gradients_nothing_runs_backward(recompute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(lm, "checkpoint")
    with torch.no_grad():
        assert counted(build(recompute=recompute), trained=True)["lm_flops"] == 2 * 3 * BODY


@pytest.mark.parametrize(
    ("positions", "read"), [(slice(3, None), 2), (slice(None), 5), (torch.tensor([[0, 4], [1, 1]]), 2)]
)
def test_rows_that_nobody_reads_are_left_out_of_the_last_layer(positions, read: int) -> None:
    counts = counted(build(), rows=Rows(positions))
    assert counts["lm_flops"] == 2 * (3 * BODY - B * (S - read) * LM.pruned_parameters)
