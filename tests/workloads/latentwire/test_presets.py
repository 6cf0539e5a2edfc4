"""Entries and products of a language model, worked out by hand."""

from __future__ import annotations

import pytest

from workloads.latentwire.presets import LMS, PRESETS, LMConfig, fast_flops, naive_flops

LM = LMConfig(vocab_size=11, d_model=8, n_layers=3, n_heads=4, n_kv_heads=2, head_dim=5, d_ff=7)
ATTENTION = 8 * (4 * 5) + 8 * (2 * 5) * 2 + (4 * 5) * 8  # queries, keys and values, output
MLP = 3 * 8 * 7


def test_entries_of_matrices() -> None:
    assert LM.attention_parameters == ATTENTION
    assert LM.mlp_parameters == MLP
    assert LM.body_parameters == 3 * (ATTENTION + MLP)
    assert LM.head_parameters == 8 * 11
    assert LM.pruned_parameters == 2 * 8 * 4 * 5 + MLP


@pytest.mark.parametrize(("window", "longest"), [(None, 100), (40, 40), (400, 100)])
def test_a_row_is_no_longer_than_positions_and_window(window: int | None, longest: int) -> None:
    shape = LMConfig(11, 8, 3, 4, 2, 5, 7, max_pos=100, window=window)
    assert shape.longest == longest


def test_products_of_the_naive_path_are_those_of_its_passes() -> None:
    every = LM.body_parameters + LM.head_parameters
    passes = [10 + 6 - 1, 10, *[10, 11, 12] * 2]  # teacher-forced, first token, early tokens for two losses
    assert naive_flops(LM, prefix=10, answer=6, early=3, prompt=20) == (
        sum(4 * every * positions for positions in passes) + 2 * every * (20 + 2)
    )


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
