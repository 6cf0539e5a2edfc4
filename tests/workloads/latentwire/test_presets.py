"""Entries and products of a language model, worked out by hand."""

from __future__ import annotations

import pytest

from perfsweep.workloads.latentwire.presets import LMS, PRESETS, LMConfig, fast_flops

LM = LMConfig(vocab_size=11, d_model=8, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=5, d_ff=7)
ATTENTION = 8 * (4 * 5) + 8 * (2 * 5) * 2 + (4 * 5) * 8  # queries, keys and values, output
MLP = 3 * 8 * 7


def test_entries_of_matrices() -> None:
    assert LM.attention_parameters == ATTENTION
    assert LM.mlp_parameters == MLP
    assert LM.body_parameters == 3 * (ATTENTION + MLP)
    assert LM.head_parameters == 8 * 11
    assert LM.pruned_parameters == 2 * 8 * 4 * 5 + MLP


def test_products_of_one_pruned_pass() -> None:
    everywhere = 4 * LM.body_parameters * 15 - 4 * LM.pruned_parameters * 9
    assert fast_flops(LM, prefix=10, answer=6, early=3) == (
        everywhere + 4 * LM.head_parameters * 6 + 2 * LM.head_parameters * 3
    )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_sizes_that_were_measured(name: str) -> None:
    preset = PRESETS[name]
    assert preset.batch >= preset.probe_rows - 4
    sizes = (preset.latent_width, preset.encoder_layers, preset.max_bytes, preset.latents)
    text = (preset.answer_tokens, preset.early_tokens, preset.examples, preset.batch)
    assert (*sizes, *text) == {
        "test": (32, 1, 128, 4, 6, 3, 64, 4),
        "demo": (64, 2, 512, 32, 16, 4, 512, 64),
        "count": (128, 6, 512, 32, 16, 4, 64, 64),
        "quality": (64, 2, 512, 32, 16, 4, 2000, 64),
    }.get(name, (256, 6, 512, 32, 16, 4, 20000, 64))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
        ("nano-l", 125_248),
        ("nano-q", 75_696),
        ("tiny-l", 1_574_208),
        ("tiny-q", 853_632),
        ("mid-l", 5_507_712),
        ("mid-q", 2_886_912),
        ("count-l", 4_589_824),
        ("count-q", 2_780_352),
    ],
)
def test_models_have_as_many_parameters_as_published_and_as_were_measured(name: str, parameters: int) -> None:
    shape = LMS[name]
    norms = (2 * shape.n_layers + 1) * shape.d_model
    biases = shape.n_layers * shape.head_dim * (shape.n_heads + 2 * shape.n_kv_heads) if shape.qkv_bias else 0
    heads = 1 if shape.tie_embeddings else 2
    assert shape.body_parameters + heads * shape.head_parameters + norms + biases == parameters


@pytest.mark.parametrize(
    ("name", "theta", "eps", "factor"),
    [
        ("llama-3.2-1b", 5e5, 1e-5, 32.0),
        ("llama-3.1-8b", 5e5, 1e-5, 8.0),
        ("qwen2.5-0.5b", 1e6, 1e-6, None),
        ("qwen2.5-7b", 1e6, 1e-6, None),
    ],
)
def test_positions_and_norms_are_those_of_the_family(
    name: str, theta: float, eps: float, factor: float | None
) -> None:
    shape = LMS[name]
    assert (shape.rope_theta, shape.rms_eps) == (theta, eps)
    assert (shape.rope_scaling and (shape.rope_scaling.factor, shape.rope_scaling.original_max)) == (  # type: ignore[union-attr]
        factor and (factor, 8192)
    )
