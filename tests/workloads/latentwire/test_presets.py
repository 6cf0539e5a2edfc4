"""Entries and products of a language model, worked out by hand."""

from __future__ import annotations

from typing import Any

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


def test_a_window_is_of_the_layers_that_have_it() -> None:
    shape = LMConfig(11, 8, 3, 4, 2, 5, 7, window=40, windowed=(0, 2))
    assert [shape.window_of(number) for number in range(3)] == [40, None, 40]


@pytest.mark.parametrize(
    ("switches", "widths"),
    [
        ({}, (8, None, 8, None, None, None)),
        ({"norms": "after", "qk_norm": "row"}, (None, 8, None, 8, 20, 10)),
        ({"norms": "both", "qk_norm": "head"}, (8, 8, 8, 8, 5, 5)),
    ],
)
def test_a_layer_has_the_norms_of_its_switches(switches: dict[str, Any], widths: tuple[Any, ...]) -> None:
    shape = LMConfig(11, 8, 3, 4, 2, 5, 7, **switches)
    assert tuple(shape.norm_widths.values()) == widths


def test_products_of_one_pruned_pass() -> None:
    everywhere = 4 * LM.body_parameters * 15 - 4 * LM.pruned_parameters * 9
    assert fast_flops(LM, prefix=10, answer=6, early=3) == (
        everywhere + 4 * LM.head_parameters * 6 + 2 * LM.head_parameters * 3
    )


@pytest.mark.parametrize("name", LMS)
def test_heads_share_keys_evenly_and_have_pairs_to_turn(name: str) -> None:
    shape = LMS[name]
    assert shape.n_heads % shape.n_kv_heads == 0
    assert shape.head_dim % 2 == 0
    assert shape.qkv_bias == ("q" in name.split("-")[-1] or "qwen" in name)
    assert not (shape.o_bias or shape.mlp_bias)


@pytest.mark.parametrize("name", PRESETS)
def test_examples_fill_a_batch_and_evidence(name: str) -> None:
    preset = PRESETS[name]
    assert preset.examples >= preset.batch >= preset.probe_rows - 4
    assert preset.early_tokens <= preset.answer_tokens


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-7b", 7_615_616_512),
    ],
)
def test_published_models_have_as_many_parameters_as_published(name: str, parameters: int) -> None:
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
        ("nano-q", 1e4, 1e-6, None),
        ("nano-l", 1e4, 1e-5, None),
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


SMALL = """
    nano-l 512 64 2 4 2 16 176
    nano-q 512 48 2 4 2 12 128
    tiny-l 2048 192 3 6 2 32 512
    tiny-q 2048 128 3 4 2 32 384
    mid-l 2048 384 3 6 2 64 1024
    mid-q 2048 256 3 4 2 64 768
    count-l 4096 256 4 4 2 64 896
    count-q 4096 192 4 4 2 48 672
"""
SIZES = """
    test nano-l/nano-q 32 1 128 4 6 3 64 4 4
    demo mid-l/mid-q 64 2 512 32 16 4 512 8 64
    count count-l/count-q 128 6 512 32 16 4 64 8 64
    full llama-3.2-1b/qwen2.5-0.5b 256 6 512 32 16 4 20000 8 64
    full8b llama-3.1-8b/qwen2.5-7b 256 6 512 32 16 4 20000 8 64
    quality tiny-l/tiny-q 64 2 512 32 16 4 2000 8 64
"""


def test_sizes_of_generated_models_and_of_workloads() -> None:
    """Vocabulary, width, layers, heads, key heads, head width, inner width; and a preset's in their order."""
    own = [
        " ".join(map(str, [name, *list(vars(shape).values())[:7]]))
        for name, shape in LMS.items()
        if "." not in name
    ]
    assert own == [line.strip() for line in SMALL.strip().splitlines()]
    found = []
    for name, preset in PRESETS.items():
        _, *sizes = vars(preset).values()
        found.append(" ".join([name, "/".join(preset.lms), *map(str, sizes)]))
    assert found == [line.strip() for line in SIZES.strip().splitlines()]
