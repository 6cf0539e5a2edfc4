"""Shapes of local models from their config.json: every field is used, changes nothing, or is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.activations import ACTIVATIONS, SYNONYMS
from perfsweep.workloads.latentwire.maths.config_fields import INERT, REQUIRED, Fields
from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn

KINDS = ("llama", "qwen2")
ROPES = ("default", "linear", "llama3", "yarn")
TURNED_WHOLE = "all entries of a head are turned here"
FULL, SLIDING = "full_attention", "sliding_attention"
Scaling = RopeScaling | LinearRope | Yarn | None
Rope = tuple[float, Scaling]


def read_shape(folder: Path, inert: Collection[str] = ()) -> LMConfig:
    """Shape of the model in a folder; fields named in `inert` change nothing, by the user's word.

    Raises
    ------
    ConfigError
        There is no readable config.json, it lacks a field, one has a value that is not computed here, or the
        model is of another kind.
    """
    found = _read_object(folder)
    kind = found.get("model_type")
    if kind not in KINDS:
        raise ConfigError(f"workload.lm_path={folder} is of type {kind}; choose one of: {', '.join(KINDS)}")
    fields = Fields(found, f"workload.lm_path={folder}: config.json")
    _refuse_other_tasks(fields)
    shape = _shape(fields, kind, inert)
    fields.refuse_rest(INERT, inert)
    return shape


def _read_object(folder: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of ValueError: no JSON, no UTF-8
        raise ConfigError(
            f"workload.lm_path={folder} has no readable config.json ({error}); name a model's folder"
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(f"workload.lm_path={folder}: config.json is no object; name a model's folder")
    return found


def _refuse_other_tasks(fields: Fields) -> None:
    fields.get("model_type")
    fields.only("is_causal", True, "positions see those before them only; correct it")
    classes = fields.items("architectures")
    if not all(str(one).endswith("ForCausalLM") for one in classes):
        raise fields.refused("architectures", "only causal language models answer; correct it")


def _shape(fields: Fields, kind: str, inert: Collection[str]) -> LMConfig:
    d, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    llama = kind == "llama"
    # A Llama without this field has as many key heads as query heads; a Qwen2 without it means no such thing.
    groups = fields.size("num_key_value_heads", heads if llama else REQUIRED)
    head_dim = fields.size("head_dim", d // heads)
    if heads % groups or head_dim % 2:
        raise fields.refused("num_key_value_heads", f"{heads} heads of even width must divide into them")
    layers = fields.size("num_hidden_layers")
    max_pos = fields.size("max_position_embeddings", 2048 if llama else 32768)
    theta, scaling = _rope(fields, max_pos, inert)
    bias = fields.flag("attention_bias") if llama else True
    return LMConfig(
        vocab_size=fields.size("vocab_size"),
        d_model=d,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=groups,
        head_dim=head_dim,
        d_ff=fields.size("intermediate_size"),
        rope_theta=theta,
        rope_scaling=scaling,
        rms_eps=fields.number("rms_norm_eps", 1e-6),
        qkv_bias=bias,
        tie_embeddings=fields.flag("tie_word_embeddings"),
        max_pos=max_pos,
        o_bias=bias and llama,
        mlp_bias=llama and fields.flag("mlp_bias"),
        activation=_activation(fields),
        window=None if llama else _window(fields, layers),
    )


def _activation(fields: Fields) -> str:
    name = fields.word("hidden_act", (*ACTIVATIONS, *SYNONYMS), "silu")
    return SYNONYMS.get(name, name)


def _window(fields: Fields, layers: int) -> int | None:
    """Positions that the layers of a sliding window see; None: no layer has one."""
    on, first = fields.flag("use_sliding_window"), fields.get("max_window_layers", 28)
    if not isinstance(first, int):
        raise fields.refused("max_window_layers", "it must be a whole number; correct it")
    size = fields.size("sliding_window", 4096)
    kinds = fields.items(
        "layer_types", [SLIDING if on and number >= first else FULL for number in range(layers)]
    )
    known = all(kind in (FULL, SLIDING) for kind in kinds)
    if len(kinds) != layers or not known or (SLIDING in kinds and not on):
        raise fields.refused("layer_types", f"each of {layers} layers is {FULL}, or {SLIDING} with a window")
    return size if SLIDING in kinds else None


def _rope(fields: Fields, max_pos: int, inert: Collection[str]) -> Rope:
    """Theta and scaling, from the one object that new folders have or the two fields of old ones."""
    theta = fields.number("rope_theta", 1e4)
    fields.only("partial_rotary_factor", 1, TURNED_WHOLE)
    found = [
        _rope_of(Fields(part, f"{fields.where}: {name}"), theta, max_pos, inert)
        for name in ("rope_scaling", "rope_parameters")
        if (part := fields.part(name))
    ]
    if found[1:] and found[0] != found[1]:
        raise fields.refused("rope_scaling", "rope_parameters says otherwise; leave one of the two out")
    return found[0] if found else (theta, None)


def _rope_of(rope: Fields, theta: float, max_pos: int, inert: Collection[str]) -> Rope:
    theta = rope.number("rope_theta", theta)
    kind = rope.word("rope_type", ROPES, rope.word("type", ROPES, "default"))
    rope.only("partial_rotary_factor", 1, TURNED_WHOLE)
    scaling = _scaling(rope, kind, max_pos)
    rope.refuse_rest(excused=inert)
    return theta, scaling


def _scaling(rope: Fields, kind: str, max_pos: int) -> Scaling:
    if kind == "default":
        return None
    factor = rope.number("factor")
    if kind == "linear":
        return LinearRope(factor)
    original = rope.size("original_max_position_embeddings", max_pos)
    if kind == "llama3":
        return RopeScaling(factor, rope.number("low_freq_factor"), rope.number("high_freq_factor"), original)
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    return Yarn(factor, original, fast, slow, _loudness(rope, factor), rope.flag("truncate", True))


def _loudness(rope: Fields, factor: float) -> float:
    """YaRN's factor of cosines and sines: given, or from the stretching."""

    def of(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    above, below = (rope.get(name, 0) and rope.number(name) for name in ("mscale", "mscale_all_dim"))
    return rope.number("attention_factor", of(above) / of(below) if above and below else of(1.0))
