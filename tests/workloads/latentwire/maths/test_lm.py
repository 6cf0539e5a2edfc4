"""What passes of a frozen model cost by their formulas, and its rotary tables."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from perfsweep.workloads.latentwire.maths.attention import eager, sdpa
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path, rms_norm
from perfsweep.workloads.latentwire.maths.passes import Rows
from perfsweep.workloads.latentwire.presets import LMS, LMConfig

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


@pytest.mark.parametrize(("attend", "kernels"), [(eager, 0), (sdpa, 3)])
def test_layers_with_a_kernel_of_attention_are_counted(attend, kernels: int) -> None:
    assert counted(build(attend))["attention_kernels"] == kernels


@pytest.mark.parametrize(
    ("wanted", "table", "passes"), [(False, False, 2), (True, False, 4), (True, True, 6)]
)
def test_a_heads_rows_bytes_and_products(wanted: bool, table: bool, passes: int) -> None:
    lm = build()
    lm.table.requires_grad_(table)
    lm.logits(tokens(wanted)[:, :3])
    counts = lm.chosen.counts
    assert counts["head_rows"] == B * 3
    assert counts["lm_flops"] == passes * B * 3 * LM.head_parameters


def test_states_of_three_layers_and_keys_of_all_are_kept() -> None:
    states: list[torch.Tensor] = []
    held: list = []
    deep = CausalLM(LMConfig(**{**vars(LM), "n_layers": 5}), torch.Generator().manual_seed(0), torch.float64)
    deep.path = Path(LayerPath(eager))
    deep.run(tokens(), states=states, keep=held)
    assert (len(states), len(held)) == (3, 5)
    assert held[0][0].shape == (B, 1, S, 4)


def test_rotary_tables_begin_anywhere_and_grow_by_doubling() -> None:
    lm = build()
    cos, sin = lm.rotation(3, 2, tokens())
    speeds = torch.tensor([1.0, 1e4**-0.5] * 2, dtype=torch.float64)
    angles = torch.outer(torch.tensor([3.0, 4.0], dtype=torch.float64), speeds)
    assert torch.allclose(cos, angles.cos()) and torch.allclose(sin, angles.sin())
    (held,) = lm._tables.values()
    assert len(held[0]) == 256
    lm.rotation(250, 6, tokens())
    assert len(next(iter(lm._tables.values()))[0]) == 256
    assert len(lm.rotation(250, 7, tokens())[0]) == 7
    assert len(next(iter(lm._tables.values()))[0]) == 512


def test_weights_begin_so_that_logits_spread_by_one() -> None:
    lm = build()
    assert float(lm.norm[0]) == pytest.approx(1 / (0.02 * math.sqrt(8)))
    assert lm.head_matrix is lm.table
    assert not any(parameter.requires_grad for parameter in lm.parameters())
    untied = CausalLM(LMConfig(**{**vars(LM), "tie_embeddings": False}), torch.Generator().manual_seed(0))
    assert untied.head_matrix is not untied.table


def test_bytes_are_those_of_the_stored_type() -> None:
    lm = build()
    entries = LM.body_parameters + LM.head_parameters + 8 + 3 * 2 * 8
    assert lm.stored_bytes() == 8 * entries
    lm.to(torch.bfloat16)
    assert lm.stored_bytes() == 2 * entries
    assert lm.logits(torch.ones(1, 1, 8, dtype=torch.bfloat16)).dtype == torch.float32


def test_a_norm_divides_by_the_root_mean_square() -> None:
    x = torch.tensor([[3.0, 4.0]])
    found = rms_norm(x, torch.tensor([1.0, 2.0]), eps=12.5)
    assert found.tolist()[0] == pytest.approx([3 / 5, 8 / 5])


def test_a_model_may_be_drawn_by_torchs_own_generator() -> None:
    torch.manual_seed(5)
    first = CausalLM(LMS["nano-l"])
    torch.manual_seed(5)
    again = CausalLM(LMS["nano-l"])
    assert torch.equal(first.table, again.table) and first.table.std() > 0
