"""Shapes of local models from their config.json: every field is used, changes nothing, or is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.config_fields import INERT, REQUIRED, Fields
from perfsweep.workloads.latentwire.maths.lm import ACTIVATIONS, SYNONYMS
from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn

ROPES = ("default", "linear", "llama3", "yarn")
TURNED_WHOLE = "all entries of a head are turned here"
FULL, SLIDING = "full_attention", "sliding_attention"
Scaling = RopeScaling | LinearRope | Yarn | None
Rope = tuple[float, Scaling]


@dataclass(frozen=True)
class Family:
    """What a type of models computes, and what its config.json means by leaving a field out.

    Attributes
    ----------
    max_pos, eps, theta, tied : without the fields of these sizes
    own_keys : as many key heads as query heads; False: the field must be given
    head_dim : entries of a head; None: the width over the heads
    biases : fields that add biases; `qkv_bias`: queries, keys and values have one always
    qk_norm, norms : as of `LMConfig`
    windows : layers that may see a window: None, "all", "later" than a given one, "unturned" ones, or all of
        a "pattern" but each `pattern`-th (None: a field says which)
    window : its size
    ropes : types of rotary positions
    gemma : has what `_gemma` reads; `score_caps`: Gemma 2's caps; `local_theta` without its field
    joined_folder : as of `LMConfig`
    inert : fields that its models do not read, beyond `INERT`
    """

    max_pos: int
    eps: float = 1e-6
    theta: float = 1e4
    tied: bool = False
    own_keys: bool = False
    head_dim: int | None = None
    biases: tuple[str, ...] = ()
    qkv_bias: bool = False
    qk_norm: str | None = None
    norms: str = "before"
    windows: str | None = None
    window: int | None = None
    ropes: tuple[str, ...] = ROPES
    gemma: bool = False
    score_caps: bool = False
    local_theta: float | None = None
    pattern: int | None = None
    joined_folder: bool = False
    inert: frozenset[str] = frozenset()


BIASES = ("attention_bias", "mlp_bias")
_GEMMA = Family(
    8192,
    tied=True,
    head_dim=256,
    biases=BIASES[:1],
    norms="both",
    windows="pattern",
    window=4096,
    pattern=2,
    gemma=True,
    score_caps=True,
    inert=frozenset(["hidden_act"]),
)
FAMILIES = {
    "gemma2": _GEMMA,
    "gemma3_text": replace(
        _GEMMA, max_pos=131072, theta=1e6, local_theta=1e4, qk_norm="head", pattern=None, score_caps=False
    ),
    "llama": Family(2048, own_keys=True, biases=BIASES),
    "mistral": Family(131072, windows="all", window=4096),
    "olmo2": Family(2048, eps=1e-5, own_keys=True, biases=BIASES[:1], qk_norm="row", norms="after"),
    "phi3": Family(
        4096,
        eps=1e-5,
        own_keys=True,
        windows="all",
        ropes=ROPES[:1],
        joined_folder=True,
        inert=frozenset(["original_max_position_embeddings"]),  # of other types of rotary positions
    ),
    "qwen2": Family(32768, qkv_bias=True, windows="later", window=4096),
    "qwen3": Family(32768, head_dim=128, biases=BIASES[:1], qk_norm="head", windows="later", window=4096),
    "smollm3": Family(
        32768, theta=2e6, tied=True, biases=BIASES, windows="unturned", inert=frozenset(["max_window_layers"])
    ),
}


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
    if kind not in FAMILIES:
        raise ConfigError(
            f"workload.lm_path={folder}: config.json: model_type={kind!r} is not computed here; choose one"
            f" of: {', '.join(FAMILIES)}"
        )
    family = FAMILIES[kind]
    fields = Fields(found, f"workload.lm_path={folder}: config.json")
    _refuse_other_tasks(fields)
    shape = _shape(fields, family, inert)
    fields.refuse_rest(INERT | family.inert, inert)
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


def _shape(fields: Fields, family: Family, inert: Collection[str]) -> LMConfig:
    d, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    groups = fields.size("num_key_value_heads", heads if family.own_keys else REQUIRED)
    head_dim = fields.size("head_dim", family.head_dim or d // heads)
    if heads % groups or head_dim % 2:
        raise fields.refused("num_key_value_heads", f"{heads} heads of even width must divide into them")
    layers = fields.size("num_hidden_layers")
    max_pos = fields.size("max_position_embeddings", family.max_pos)
    theta, scaling = _rope(fields, family, max_pos, inert)
    bias, mlp_bias = (name in family.biases and fields.flag(name) for name in ("attention_bias", "mlp_bias"))
    unturned = _unturned(fields, layers) if family.windows == "unturned" else ()
    window, windowed = _windows(fields, family, layers, unturned)
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
        rms_eps=fields.number("rms_norm_eps", family.eps),
        qkv_bias=bias or family.qkv_bias,
        tie_embeddings=fields.flag("tie_word_embeddings", family.tied),
        max_pos=max_pos,
        o_bias=bias,
        mlp_bias=mlp_bias,
        activation=_activation(fields, family),
        window=window,
        windowed=windowed,
        unturned=unturned,
        qk_norm=family.qk_norm,
        norms=family.norms,
        joined_folder=family.joined_folder,
        **(_gemma(fields, family, d, head_dim, inert) if family.gemma else {}),
    )


def _gemma(fields: Fields, family: Family, d: int, head_dim: int, inert: Collection[str]) -> dict[str, Any]:
    """What Gemma's models have of their own."""
    return {
        "local_theta": _local_theta(fields, family, inert),
        "query_scale": math.sqrt(head_dim / fields.number("query_pre_attn_scalar", 256)),
        # Gemma 3 has this field too, and transformers does not read it there.
        "score_cap": fields.number_or_none("attn_logit_softcapping", 50.0) if family.score_caps else None,
        "logit_cap": fields.number_or_none("final_logit_softcapping", 30.0 if family.score_caps else None),
        "folder_table_scale": math.sqrt(d),
        "folder_norm_offset": 1.0,
    }


def _local_theta(fields: Fields, family: Family, inert: Collection[str]) -> float | None:
    """Theta of the layers with a window, in one field or in one part of an object."""
    if family.local_theta is None:
        return None
    parts = Fields(fields.part("rope_parameters"), f"{fields.where}: rope_parameters")
    rope = Fields(parts.part(SLIDING), f"{parts.where}: {SLIDING}")
    parts.get(FULL, None)
    parts.refuse_rest(excused=inert)
    theta = fields.number("rope_local_base_freq", family.local_theta)
    return _rope_of(rope, ROPES[:1], theta, 1, inert)[0]


def _activation(fields: Fields, family: Family) -> str:
    field, default = ("hidden_activation", "gelu_pytorch_tanh") if family.gemma else ("hidden_act", "silu")
    name = fields.word(field, (*ACTIVATIONS, *SYNONYMS), default)
    return SYNONYMS.get(name, name)


def _unturned(fields: Fields, layers: int) -> tuple[int, ...]:
    """Numbers of the layers without rotary positions."""
    every = fields.size("no_rope_layer_interval", 4)
    turned = fields.items("no_rope_layers", [int((number + 1) % every != 0) for number in range(layers)])
    if len(turned) < layers or any(one not in (0, 1) for one in turned):
        raise fields.refused("no_rope_layers", f"each of {layers} layers has 1, or 0 to turn nothing")
    return tuple(number for number in range(layers) if not turned[number])


def _windows(
    fields: Fields, family: Family, layers: int, unturned: tuple[int, ...]
) -> tuple[int | None, tuple[int, ...]]:
    """Positions that a query sees, and the layers with such a window."""
    if family.windows is None:
        return None, ()
    size = fields.size_or_none("sliding_window", family.window)
    if family.windows == "all":
        return size, () if size is None else tuple(range(layers))
    if family.windows == "pattern":
        every = family.pattern or fields.size("sliding_window_pattern", 6)
        on, own = size is not None, [number for number in range(layers) if (number + 1) % every]
    else:
        own = unturned if family.windows == "unturned" else range(_first_windowed(fields), layers)
        on = fields.flag("use_sliding_window") and size is not None
    kinds = fields.items(
        "layer_types", [SLIDING if on and number in own else FULL for number in range(layers)]
    )
    known = all(kind in (FULL, SLIDING) for kind in kinds)
    if len(kinds) != layers or not known or (SLIDING in kinds and not on):
        raise fields.refused("layer_types", f"each of {layers} layers is {FULL}, or {SLIDING} with a window")
    found = tuple(number for number, kind in enumerate(kinds) if kind == SLIDING)
    return size if found else None, found


def _first_windowed(fields: Fields) -> int:
    first = fields.get("max_window_layers", 28)
    if not isinstance(first, int) or first < 0:
        raise fields.refused("max_window_layers", "it must be a whole number; correct it")
    return first


def _rope(fields: Fields, family: Family, max_pos: int, inert: Collection[str]) -> Rope:
    """Theta and scaling, from the one object that new folders have or the two fields of old ones."""
    theta = fields.number("rope_theta", family.theta)
    fields.only("partial_rotary_factor", 1, TURNED_WHOLE)
    parts = {name: fields.part(name) for name in ("rope_scaling", "rope_parameters")}
    if family.local_theta is not None:
        parts["rope_parameters"] = Fields(parts["rope_parameters"], fields.where).part(FULL)
    found = [
        _rope_of(Fields(part, f"{fields.where}: {name}"), family.ropes, theta, max_pos, inert)
        for name, part in parts.items()
        if part
    ]
    if found[1:] and found[0] != found[1]:
        raise fields.refused("rope_scaling", "rope_parameters says otherwise; leave one of the two out")
    return found[0] if found else (theta, None)


def _rope_of(
    rope: Fields, known: tuple[str, ...], theta: float, max_pos: int, inert: Collection[str]
) -> Rope:
    theta = rope.number("rope_theta", theta)
    kind = rope.word("rope_type", known, rope.word("type", known, "default"))
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
