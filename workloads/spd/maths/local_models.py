"""A GPT-2 from a local folder in the layout of transformers: config.json and weights, sharded or not.

Every field of the configuration that changes what is computed is implemented or refused by its name, and
every tensor is used or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.layers import ACTIVATIONS
from perfsweep.workloads.spd.maths.target import Gpt2, Target
from perfsweep.workloads.spd.presets import TargetSpec
from perfsweep.workloads.weight_files import FLOATS, read_safetensors, read_shards, read_torch

SIZES = ("n_embd", "n_layer", "n_head", "n_inner", "vocab_size", "n_positions", "n_ctx")
IMPLEMENTED = frozenset(
    {
        *SIZES,
        *("activation_function", "layer_norm_epsilon", "tie_word_embeddings"),
        *("scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
        "reorder_and_upcast_attn",  # attention in float32, which is what everything here is in
    }
)
REQUIRED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
}
"""Fields that would change what is computed, and the values under which they do not."""
HARMLESS = re.compile(
    r"_.*|.*_pdrop|.*_token_id|summary_.*|return_dict|output_.*|use_cache|architectures|torch_dtype|dtype"
    r"|transformers_version|initializer_range|task_specific_params|id2label|label2id|problem_type|is_decoder"
    r"|gradient_checkpointing|chunk_size_feed_forward|finetuning_task|torchscript|use_bfloat16|predict_special"
    r"_tokens|.*length.*|do_sample|early_stopping|num_beams|num_beam_groups|diversity_penalty|temperature"
    r"|top_[kp]|typical_p|repetition_penalty|no_repeat_ngram_size|encoder_no_repeat_ngram_size|bad_words_ids"
    r"|num_return_sequences|remove_invalid_values|exponential_decay.*|suppress_tokens|begin_suppress_tokens"
    r"|forced_.*|prefix|sep_token|tokenizer_class|tf_legacy_loss|cross_attention_hidden_size|attn_implementation"
    r"|name_or_path"
)
"""Fields for training, generation, other heads and bookkeeping, none of which a pass in evaluation reads."""
# Causal masks that old files carry along; the network needs none.
MASKS = re.compile(r"h\.\d+\.attn\.(masked_)?bias")
HEAD, TABLE = "lm_head.weight", "wte.weight"


def load_gpt2(folder: Path, fused: bool = False) -> tuple[Target, TargetSpec]:
    """A GPT-2 from a local folder of config.json and model.safetensors or pytorch_model.bin, float32.

    Raises
    ------
    ConfigError
        A file is missing or damaged, its tensors are not those of a GPT-2 of the configured size, or the
        configuration asks for something that is not implemented.
    """
    spec = gpt2_spec(folder)
    target = Gpt2(spec, fused)
    state = _plain_names(folder, _read_folder(folder))
    if spec.tied:
        _refuse_other_head(folder, state)
    _refuse_misfit(folder, target.state_dict(), state)
    target.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return target, spec


def gpt2_spec(folder: Path) -> TargetSpec:
    """The GPT-2 that the config.json of a folder describes.

    Raises
    ------
    ConfigError
        The file cannot be read, or a field asks for something that is not implemented.
    """
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text())
        if not isinstance(config, dict):
            raise ValueError("it holds no fields")
        _refuse_fields(file, config)
        width, heads = int(config["n_embd"]), int(config["n_head"])
        spec = TargetSpec(
            "gpt2",
            layers=int(config["n_layer"]),
            width=width,
            heads=heads,
            kv_heads=heads,
            mlp=int(config.get("n_inner") or 4 * width),
            vocab=int(config["vocab_size"]),
            context=int(config.get("n_positions") or config["n_ctx"]),
            activation=str(config.get("activation_function", "gelu_new")),
            eps=float(config.get("layer_norm_epsilon", 1e-5)),
            scaled=bool(config.get("scale_attn_weights", True)),
            scaled_by_layer=bool(config.get("scale_attn_by_inverse_layer_idx", False)),
            tied=bool(config.get("tie_word_embeddings", True)),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"workload.target_path={folder} needs the config.json of a GPT-2, and that cannot be read:"
            f" {error}"
        ) from error
    _refuse_values(file, spec)
    return spec


def _refuse_fields(file: Path, config: Mapping[str, Any]) -> None:
    for name, value in config.items():
        if name in REQUIRED and value not in REQUIRED[name]:
            raise ConfigError(f"workload.target_path: {file}: {name}={value} is not implemented")
        if name not in IMPLEMENTED and name not in REQUIRED and not HARMLESS.fullmatch(name):
            raise ConfigError(
                f"workload.target_path: {file} has the field {name}, which no GPT-2 has and which may change"
                " what it computes; remove it if it does not"
            )


def _refuse_values(file: Path, spec: TargetSpec) -> None:
    if spec.activation not in ACTIVATIONS:
        raise ConfigError(
            f"workload.target_path: {file}: activation_function={spec.activation} is not implemented;"
            f" these are: {', '.join(ACTIVATIONS)}"
        )
    if spec.heads < 1 or spec.width % spec.heads:
        raise ConfigError(
            f"workload.target_path: {file}: n_embd={spec.width} is no multiple of n_head={spec.heads}"
        )


def _refuse_other_head(folder: Path, state: dict[str, Tensor]) -> None:
    """Drop a head that repeats the table; one that does not contradicts the configuration."""
    head = state.pop(HEAD, None)
    if head is not None and TABLE in state and not torch.equal(head, state[TABLE]):
        raise ConfigError(
            f"workload.target_path={folder}: {HEAD} differs from {TABLE}, and config.json says that the head"
            " is tied; set tie_word_embeddings to false there if the head is its own"
        )


def _refuse_misfit(folder: Path, expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    if missing := sorted(expected.keys() - state.keys()):
        raise ConfigError(
            f"workload.target_path={folder}: the weights lack {missing[0]}, so they are no GPT-2 of this"
            " configuration"
        )
    if unexpected := sorted(state.keys() - expected.keys()):
        raise ConfigError(
            f"workload.target_path={folder}: the weights hold {unexpected[0]}, which a GPT-2 has not"
        )
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            shapes = f"{list(tensor.shape)}, and config.json asks for {list(expected[name].shape)}"
            raise ConfigError(
                f"workload.target_path={folder}: {name} is {shapes}; the two files belong to different models"
            )
        if tensor.dtype not in FLOATS.values():
            raise ConfigError(
                f"workload.target_path={folder}: {name} holds {tensor.dtype}, which is a quantised weight;"
                " save the model in float32, float16 or bfloat16"
            )


def _read_folder(folder: Path) -> dict[str, Tensor]:
    """All tensors of the first of these that there is."""
    for name, read in (("model.safetensors", read_safetensors), ("pytorch_model.bin", read_torch)):
        if (folder / name).is_file():
            return read(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return read_shards(index, read, "workload.target_path: ")
    raise ConfigError(
        f"workload.target_path={folder} holds neither model.safetensors nor pytorch_model.bin, nor the"
        " .index.json of their shards; copy one of them there"
    )


def _plain_names(folder: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the optional prefix, and without causal masks."""
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        plain = name.removeprefix("transformer.")
        if plain in found:
            raise ConfigError(
                f"workload.target_path={folder}: the weights hold {plain} twice, with and without the prefix"
                " transformer."
            )
        if not MASKS.fullmatch(plain):
            found[plain] = tensor
    return found
