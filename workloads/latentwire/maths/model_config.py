"""Shapes of local models from their config.json: every field is used, changes nothing, or is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.activations import ACTIVATIONS, SYNONYMS
from perfsweep.workloads.latentwire.presets import LinearRope, LMConfig, RopeScaling, Yarn

KINDS = ("llama", "qwen2")
ROPES = ("default", "linear", "llama3", "yarn")
FULL, SLIDING = "full_attention", "sliding_attention"

# Fields that say nothing about what is computed from given ids and weights without dropout.
INERT = frozenset(
    [
        "attention_dropout",
        "bos_token_id",
        "chunk_size_feed_forward",
        "dtype",
        "eos_token_id",
        "id2label",
        "initializer_range",
        "label2id",
        "max_length",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "unsloth_fixed",
        "unsloth_version",
        "use_cache",
    ]
)
_REQUIRED = object()


class Fields:
    """Fields of a JSON object. Whoever reads one says what it may be; `refuse_rest` refuses the others."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self._where = values, where
        self._used: set[str] = set()

    def refused(self, name: str, rule: str) -> ConfigError:
        """The error for a field that cannot be used."""
        return ConfigError(
            f"{self._where}: {name}={self._values.get(name)!r} cannot be used: {rule}; use another model"
        )

    def get(self, name: str, default: Any = _REQUIRED) -> Any:
        """A field as it stands; null is the same as left out."""
        self._used.add(name)
        value = self._values.get(name)
        if value is None and default is _REQUIRED:
            raise ConfigError(f"{self._where} lacks the field {name}; complete it")
        return default if value is None else value

    def size(self, name: str, default: Any = _REQUIRED) -> int:
        """A whole number above 0."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refused(name, "it must be a whole number above 0")
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> float:
        """A number above 0."""
        value = self.get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
            raise self.refused(name, "it must be a number above 0")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.get(name, default)
        if not isinstance(value, bool):
            raise self.refused(name, "it must be true or false")
        return value

    def word(self, name: str, choices: tuple[str, ...], default: Any = _REQUIRED) -> str:
        """One of `choices`."""
        value = self.get(name, default)
        if value not in choices:
            raise self.refused(name, f"known here are {', '.join(choices)}")
        return value

    def part(self, name: str) -> Mapping[str, Any]:
        """An object; empty where it is left out."""
        value = self.get(name, {})
        if not isinstance(value, Mapping):
            raise self.refused(name, "it must be an object")
        return value

    def items(self, name: str, default: Sequence[Any] = ()) -> Sequence[Any]:
        """A list."""
        value = self.get(name, default)
        if not isinstance(value, list | tuple):
            raise self.refused(name, "it must be a list")
        return value

    def refuse_rest(self, inert: frozenset[str] = frozenset()) -> None:
        """Refuse every field that was not read, is not `inert`, and is not off (null, false or empty).

        Raises
        ------
        ConfigError
            There is one; it is named.
        """
        for name in sorted(set(self._values) - self._used - inert):
            value = self._values[name]
            if not (name.startswith("_") or value is None or value is False or value in ([], {})):
                raise self.refused(name, "what it changes is not computed here")


def read_shape(folder: Path) -> LMConfig:
    """Shape of the model in a folder.

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
    _refuse_other_heads(fields)
    shape = _shape(fields, kind)
    fields.refuse_rest(INERT)
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


def _refuse_other_heads(fields: Fields) -> None:
    fields.get("model_type")
    classes = fields.items("architectures")
    if not all(str(one).endswith("ForCausalLM") for one in classes):
        raise fields.refused("architectures", "only causal language models answer")


def _shape(fields: Fields, kind: str) -> LMConfig:
    d, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    llama = kind == "llama"
    # A Llama without this field has as many key heads as query heads; a Qwen2 without it means no such thing.
    groups = fields.size("num_key_value_heads", heads if llama else _REQUIRED)
    head_dim = fields.size("head_dim", d // heads)
    if heads % groups or head_dim % 2:
        raise fields.refused("num_key_value_heads", f"{heads} heads of even width must divide into them")
    layers = fields.size("num_hidden_layers")
    max_pos = fields.size("max_position_embeddings", 2048 if llama else 32768)
    theta, scaling = _rope(fields, max_pos)
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
        raise fields.refused("max_window_layers", "it must be a whole number")
    size = fields.size("sliding_window", 4096)
    kinds = fields.items(
        "layer_types", [SLIDING if on and number >= first else FULL for number in range(layers)]
    )
    known = all(kind in (FULL, SLIDING) for kind in kinds)
    if len(kinds) != layers or not known or (SLIDING in kinds and not on):
        raise fields.refused("layer_types", f"each of {layers} layers is {FULL}, or {SLIDING} with a window")
    return size if SLIDING in kinds else None


def _rope(fields: Fields, max_pos: int) -> tuple[float, RopeScaling | LinearRope | Yarn | None]:
    """Theta and scaling, from the one object that new folders have or the two fields of old ones."""
    old, new = fields.part("rope_scaling"), fields.part("rope_parameters")
    rope = Fields({**new, **old}, f"{fields._where}: {'rope_scaling' if old else 'rope_parameters'}")
    theta = rope.number("rope_theta", fields.number("rope_theta", 1e4))
    kind = rope.word("rope_type", ROPES, rope.word("type", ROPES, "default"))
    for place in (fields, rope):
        if place.number("partial_rotary_factor", 1.0) != 1:
            raise place.refused("partial_rotary_factor", "all entries of a head are turned here")
    scaling = _scaling(rope, kind, max_pos)
    rope.refuse_rest()
    return theta, scaling


def _scaling(rope: Fields, kind: str, max_pos: int) -> RopeScaling | LinearRope | Yarn | None:
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
