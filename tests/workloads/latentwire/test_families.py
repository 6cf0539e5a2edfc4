"""A training for a model of each type: the fast path has the terms and gradients of the naive one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import tiered

from perfsweep.workloads.latentwire.variants import FAST_EXACT

transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

FAST = {**FAST_EXACT, "encoder_attn": "sdpa", "products": "library", "micro_batch": 4}
SIZES: dict[str, Any] = {
    "vocab_size": 424,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
OWN: dict[str, dict[str, Any]] = {
    "Gemma2": {"sliding_window": 6},
    "Gemma3Text": {"sliding_window": 6, "sliding_window_pattern": 2},
    "Mistral": {"sliding_window": 6},
    "Olmo2": {},
    "Phi3": {"sliding_window": 6},
    "Qwen3": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "SmolLM3": {"use_sliding_window": True, "sliding_window": 6, "no_rope_layer_interval": 2},
}


@pytest.mark.parametrize("family", tiered([(name,) for name in OWN], ("Mistral",)))
def test_the_fast_path_trains_as_the_naive_one(
    family: str, tmp_path: Path, byte_level: Any, write_tokenizer: Any, start: Any
) -> None:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **OWN[family])
    made = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
    config.save_pretrained(tmp_path)
    tensors = {name: one.clone() for name, one in made.state_dict().items()}
    safetensors_torch.save_file(tensors, tmp_path / "model.safetensors")
    write_tokenizer(tmp_path, byte_level())
    given = {"lm_path": str(tmp_path), "tokenizer": "auto", "dtype": "float64", "deep_prefix": True}
    naive, fast = (start(levels, "evidence", **given).evidence().tensors for levels in ({}, FAST))
    for name in ("terms", "gradient"):
        assert (fast[name] - naive[name]).norm() <= 1e-10 * naive[name].norm()
    assert torch.equal(fast["greedy_ids"], naive["greedy_ids"])
