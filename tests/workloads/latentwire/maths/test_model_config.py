"""What a local model's config.json says: each field by itself, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 24,
    "num_attention_heads": 6,
    "num_hidden_layers": 3,
    "vocab_size": 50,
    "intermediate_size": 40,
}
QWEN = {**LLAMA, "model_type": "qwen2", "num_key_value_heads": 2}


def shape_of(folder: Path, base: dict[str, Any], **changed: Any) -> LMConfig:
    (folder / "config.json").write_text(json.dumps({**base, **changed}))
    return read_shape(folder)


LINEAR = {"rope_type": "linear", "factor": 4.0}


@pytest.mark.parametrize(
    ("old", "new", "theta", "agree"),
    [
        ({"type": "linear", "factor": 4}, {**LINEAR, "rope_theta": 7.0}, 7.0, True),
        ({**LINEAR, "rope_theta": 7.0}, {**LINEAR, "rope_theta": 7.0}, None, True),
        (LINEAR, {**LINEAR, "rope_theta": 7.0}, None, False),  # transformers: theta 10,000
        ({**LINEAR, "factor": 2.0}, LINEAR, 7.0, False),
        (LINEAR, {"rope_theta": 7.0}, 7.0, False),
        ({**LINEAR, "rope_type": "yarn"}, {**LINEAR, "rope_type": "yarn", "truncate": False}, 7.0, False),
    ],
)
def test_two_objects_about_rotary_positions_say_the_same(
    old: dict[str, Any], new: dict[str, Any], theta: float | None, agree: bool, tmp_path: Path
) -> None:
    given = {"rope_scaling": old, "rope_parameters": new, "rope_theta": theta}
    if agree:
        assert shape_of(tmp_path, LLAMA, **given).rope_theta == 7.0
        return
    with pytest.raises(ConfigError, match=r"rope_scaling=.* rope_parameters says otherwise; leave one"):
        shape_of(tmp_path, LLAMA, **given)


def test_a_user_may_say_that_a_field_changes_nothing(tmp_path: Path) -> None:
    strange = {**LLAMA, "flavour": 3, "rope_scaling": {**LINEAR, "colour": "red"}}
    (tmp_path / "config.json").write_text(json.dumps(strange))
    assert read_shape(tmp_path, ["flavour", "colour"]).rope_scaling == LinearRope(4.0)
    with pytest.raises(ConfigError, match=r"flavour=3 is not computed here.*inert_fields=\[flavour\]"):
        read_shape(tmp_path, ["colour"])
    with pytest.raises(ConfigError, match=r"colour='red' .*set workload\.inert_fields=\[colour\]"):
        read_shape(tmp_path, ["flavour"])
    with pytest.raises(ConfigError, match=r"inert_fields=\[vocab_size\].* is computed here; leave it out"):
        read_shape(tmp_path, ["flavour", "colour", "vocab_size"])


@pytest.mark.parametrize(
    ("base", "given", "sentence"),
    [
        (LLAMA, {"model_type": "bert"}, "model_type='bert' is not computed here; choose one of: gemma2, "),
        (LLAMA, {"architectures": ["LlamaForCausalLM", "LlamaModel"]}, "only causal language models answer"),
        (LLAMA, {"num_key_value_heads": 4}, "6 heads of even width must divide into them"),
        (LLAMA, {"hidden_size": None}, "lacks the field hidden_size; complete it"),
        (QWEN, {"num_key_value_heads": None}, "lacks the field num_key_value_heads"),
        (LLAMA, {"vocab_size": 0}, "vocab_size=0 cannot be used: it must be a whole number above 0"),
        (LLAMA, {"vocab_size": True}, "vocab_size=True .* a whole number"),
        (LLAMA, {"rms_norm_eps": 0}, "rms_norm_eps=0 .* a number above 0"),
        (LLAMA, {"attention_bias": 1}, "attention_bias=1 .* true or false"),
        (LLAMA, {"hidden_act": "sine"}, "hidden_act='sine' .* computed here are "),
        (LLAMA, {"rope_scaling": [4]}, r"rope_scaling=\[4\] .* it must be an object"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5 .* all entries of a head"),
        (LLAMA, {"rope_scaling": {"factor": 2.0, "type": "linear", "partial_rotary_factor": 0.5}}, "partial"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0, "odd": 1}}, "rope_scaling: odd=1"),
        (LLAMA, {"rope_parameters": {"rope_type": "linear"}}, "rope_parameters lacks the field factor"),
        (LLAMA, {"quantization_config": {"bits": 4}}, "quantization_config.* is not computed here"),
        (LLAMA, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling"),
        (LLAMA, {"rope_parameters": {"rope_type": "longrope", "long_factor": [1.0]}}, "rope_parameters"),
        (LLAMA, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        (LLAMA, {"use_qk_norm": True}, "use_qk_norm"),
        (LLAMA, {"sliding_window": 16}, "sliding_window"),  # a Llama has none in transformers
        (LLAMA, {"layer_types": ["sliding_attention", *["full_attention"] * 2]}, "layer_types"),
        (LLAMA, {"is_causal": False}, "is_causal=False .* positions see those before them only"),
        (LLAMA, {"architectures": 3}, "architectures=3 .* it must be a list"),
        (
            LLAMA,
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": "a", "mscale_all_dim": 1.0}},
            "mscale='a' .* it must be a number above 0",
        ),
        (QWEN, {"max_window_layers": "all"}, "max_window_layers='all' .* it must be a whole number"),
        (QWEN, {"layer_types": 3}, "layer_types=3 .* it must be a list"),
        (QWEN, {"layer_types": ["full_attention"] * 2}, "each of 3 layers is full_attention, or sliding"),
        (QWEN, {"layer_types": ["full_attention"] * 2 + ["sliding_attention"]}, "each of 3 layers"),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(
    base: dict[str, Any], given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        shape_of(tmp_path, base, **given)


@pytest.mark.parametrize("text", ["{", "[]", b"\xff"])
def test_a_file_that_is_no_object_is_refused(text: str | bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=r"config\.json.*; name a model's folder"):
        read_shape(tmp_path)
