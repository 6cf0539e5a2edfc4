"""The student's passes: every path gives the same numbers and costs what it is said to."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from bare_arms import bare, with_model

from perfsweep.workloads.latentwire.maths.attention import eager
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.passes import Prefix
from perfsweep.workloads.latentwire.presets import LMConfig

LM = LMConfig(vocab_size=11, d_model=8, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=4, d_ff=12)
B, M, T, K, P = 2, 3, 5, 3, 6
PATHS: dict[str, dict[str, str]] = {
    "naive": {},
    "kv": {"k_loss": "kv"},
    "batched": {"k_loss": "batched"},
    "slice": {"logits": "slice"},
    "batched slice": {"k_loss": "batched", "logits": "slice"},
    "merged": {"passes": "merged"},
    "merged slice": {"passes": "merged", "logits": "slice"},
    "pruned": {"last_block": "pruned"},
}
SEQUENTIAL = 2 * sum(P + t for t in range(K))
COSTS = {  # passes, positions of a row, and rows of the head of a row
    "naive": (2 + 2 * K, (P + T - 1) + P + SEQUENTIAL, (P + T - 1) + P + SEQUENTIAL),
    "kv": (2 + 2 * K, (P + T - 1) + P + 2 * (P + K - 1), (P + T - 1) + P + 2 * (P + K - 1)),
    "batched": (4, (P + T - 1) + P + 2 * (P + K - 1), (P + T - 1) + P + 2 * (P + K - 1)),
    "slice": (2 + 2 * K, (P + T - 1) + P + SEQUENTIAL, T + 1 + 2 * K),
    "batched slice": (4, (P + T - 1) + P + 2 * (P + K - 1), T + 1 + 2 * K),
    "merged": (1, P + T - 1, P + T - 1),
    "merged slice": (1, P + T - 1, T),
    "pruned": (1, P + T - 1, T),
}


@pytest.fixture(scope="module")
def lm() -> CausalLM:
    made = CausalLM(LM, torch.Generator().manual_seed(0), torch.float64)
    made.path = Path(LayerPath(eager))
    return made


@pytest.fixture(scope="module")
def given() -> tuple[Prefix, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    soft = torch.randn(B, M, 8, generator=generator, dtype=torch.float64)
    return Prefix(soft), torch.randint(0, 11, (B, T), generator=generator)


def student(lm: CausalLM, levels: dict[str, str], states: bool = True) -> tuple[Any, Any]:
    """An arm of these levels and its model."""
    lm.chosen.counts.clear()
    made = bare(levels, early_tokens=K, answer_tokens=T, state_kd=states)
    return made, with_model(made, lm, before=[1], anchor=[4, 5])


def test_what_stands_around_soft_tokens_is_embedded(lm: CausalLM, given) -> None:
    made, model = student(lm, {})
    start = made.around(model, given[0]).tokens
    assert start.shape == (B, P, 8)
    assert torch.equal(start[1, 0], lm.table[1])
    assert torch.equal(start[:, 1:4], given[0].tokens)
    assert torch.equal(start[0, 4:], lm.table[[4, 5]])


@pytest.mark.parametrize("name", PATHS)
def test_every_path_gives_the_losses_of_one_whole_pass_at_its_cost(name: str, lm: CausalLM, given) -> None:
    made, model = student(lm, PATHS[name])
    prefix, answer = given
    found = made.ask(model, prefix, answer)
    counts = Counter(lm.chosen.counts)
    x = torch.cat((made.around(model, prefix).tokens, lm.embed(answer[:, :-1])), dim=1)
    states: list[torch.Tensor] = []
    logits = lm.logits(lm.run(x, states=states))[:, P - 1 :]
    losses = -logits.log_softmax(-1).gather(-1, answer[..., None])[..., 0]
    assert torch.allclose(found.ce, losses)
    assert torch.allclose(found.ce_first, losses[:, 0])
    assert torch.allclose(found.ce_early, losses[:, :K])
    assert torch.allclose(found.early_logits, logits[:, :K])
    assert torch.allclose(found.first_logits, logits[:, 0])
    assert not found.first_logits.requires_grad
    assert len(found.states) == len(states) == 2
    for own, right in zip(found.states, states, strict=True):
        assert torch.allclose(own, right[:, P - 1 : P - 1 + K])
    passes, positions, rows = COSTS[name]
    assert counts["student_passes"] == passes
    assert counts["student_positions"] == B * positions
    assert counts["head_rows"] == B * rows


@pytest.mark.parametrize("name", ["naive", "batched", "pruned"])
def test_states_are_kept_only_where_they_are_asked_for(name: str, lm: CausalLM, given) -> None:
    made, model = student(lm, PATHS[name], states=False)
    assert made.ask(model, *given).states == []
