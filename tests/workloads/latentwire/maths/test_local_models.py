"""Local folders: each field of config.json is computed as transformers does, or refused; and each tensor."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest
import torch
from tiers import tiered

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.config_fields import INERT
from perfsweep.workloads.latentwire.maths.frozen import check_weights, load_weights
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.maths.model_config import read_shape
from perfsweep.workloads.latentwire.presets import LMConfig, Yarn

transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
CLASSES = {
    "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
    "gemma3_text": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
    "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
}
IDS = torch.randint(0, 64, (2, 24), generator=torch.Generator().manual_seed(7))


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 1e4, "rope_type": kind, **more}}


YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 100.0}
LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
BOTH: dict[str, dict[str, Any]] = {
    "as it is": {},
    "vocab_size": {"vocab_size": 80},
    "hidden_size": {"hidden_size": 48},
    "intermediate_size": {"intermediate_size": 40},
    "num_hidden_layers": {"num_hidden_layers": 3},
    "num_attention_heads": {"num_attention_heads": 2},
    "num_key_value_heads": {"num_key_value_heads": 1},
    "hidden_act": {"hidden_act": "gelu"},
    "hidden_act=gelu_new": {"hidden_act": "gelu_new"},
    "hidden_act=gelu_pytorch_tanh": {"hidden_act": "gelu_pytorch_tanh"},
    "hidden_act=relu": {"hidden_act": "relu"},
    "hidden_act=swish": {"hidden_act": "swish"},
    "max_position_embeddings": {"max_position_embeddings": 48},
    "rms_norm_eps": {"rms_norm_eps": 1e-2},
    "tie_word_embeddings": {"tie_word_embeddings": True},
    "rope_parameters": rope("default", rope_theta=500.0),
    "linear": rope("linear", factor=4.0),
    "llama3": rope("llama3", **LLAMA3),
    "yarn": rope("yarn", **YARN),
    "yarn, attention_factor": rope("yarn", **YARN, attention_factor=1.3),
    "yarn, mscale": rope("yarn", **YARN, mscale=0.7, mscale_all_dim=1.4),
    "yarn, betas": rope("yarn", **YARN, beta_fast=2.0, beta_slow=0.2),
    "yarn, truncate": rope("yarn", **YARN, truncate=False),
    # What follows changes nothing in transformers, and is read for that reason.
    "initializer_range": {"initializer_range": 0.1},
    "use_cache": {"use_cache": False},
    "attention_dropout": {"attention_dropout": 0.5},
    "pad_token_id": {"pad_token_id": 3},
    "bos_token_id": {"bos_token_id": 3},
    "eos_token_id": {"eos_token_id": 3},
    "dtype": {"dtype": "float32"},
    "id2label": {"id2label": {"0": "other", "1": "than"}},
    "problem_type": {"problem_type": "regression"},
    "output_attentions": {"output_attentions": True, "attn_implementation": "eager"},
    "output_hidden_states": {"output_hidden_states": True},
    "chunk_size_feed_forward": {"chunk_size_feed_forward": 2},
}
WINDOW = {"use_sliding_window": True, "sliding_window": 8}
LATER: dict[str, dict[str, Any]] = {
    "max_window_layers": {"max_window_layers": 1},
    "sliding_window": {"sliding_window": 12},
    "use_sliding_window": {**WINDOW, "max_window_layers": 1},
    "a window of all": {**WINDOW, "sliding_window": 24, "max_window_layers": 0},
    "layer_types": {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "window and linear": {**WINDOW, "max_window_layers": 1, **rope("linear", factor=4.0)},
}
GEMMA: dict[str, dict[str, Any]] = {
    "attention_bias": {"attention_bias": True},
    "head_dim": {"head_dim": 16},
    "hidden_activation": {"hidden_activation": "silu"},
    "query_pre_attn_scalar": {"query_pre_attn_scalar": 50},
    "final_logit_softcapping": {"final_logit_softcapping": 0.5},
    "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    **{f"sliding_window={size}": {"sliding_window": size} for size in (1, 8, 23, 24)},
    "layer_types": {"sliding_window": 8, "layer_types": ["full_attention", "sliding_attention"]},
    "untied": {"tie_word_embeddings": False},
    "all at once": {
        "sliding_window": 8,
        "query_pre_attn_scalar": 50,
        "attention_bias": True,
        "head_dim": 16,
        "final_logit_softcapping": 0.5,
    },
}


def nested(**full: Any) -> dict[str, Any]:
    """Rotary positions of Gemma 3: one object for each kind of layer."""
    sliding = {"rope_type": "default", "rope_theta": 50.0}
    parts = {"full_attention": {"rope_type": "default", "rope_theta": 500.0, **full}}
    return {
        "rope_parameters": {**parts, "sliding_attention": sliding},
        "sliding_window": 8,
        "layer_types": MIXED,
    }


MIXED = ["sliding_attention", "full_attention"]
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "gemma2": {**GEMMA, "attn_logit_softcapping": {"attn_logit_softcapping": 0.01}},
    "gemma3_text": {
        **GEMMA,
        "rope_parameters": nested(),
        "linear": nested(rope_type="linear", factor=4.0),
        "sliding_window_pattern": {"sliding_window_pattern": 2, "sliding_window": 8},
    },
    "llama": {
        "attention_bias": {"attention_bias": True},
        "mlp_bias": {"mlp_bias": True},
        "head_dim": {"head_dim": 16},
        "pretraining_tp": {"pretraining_tp": 2},
    },
    "mistral": {
        "head_dim": {"head_dim": 16},
        **{f"sliding_window={size}": {"sliding_window": size} for size in (None, 1, 8, 23, 24)},
        "window and yarn": {"sliding_window": 8, **rope("yarn", **YARN)},
    },
    "olmo2": {
        "attention_bias": {"attention_bias": True},
        "tied with a bias": {"attention_bias": True, "tie_word_embeddings": True},
        "yarn with one key head": {"num_key_value_heads": 1, **rope("yarn", **YARN)},
    },
    "phi3": {
        "head_dim": {"head_dim": 16},
        "resid_pdrop": {"resid_pdrop": 0.5},
        "embd_pdrop": {"embd_pdrop": 0.5},
        "original_max_position_embeddings": {"original_max_position_embeddings": 16},
        **{f"sliding_window={size}": {"sliding_window": size} for size in (1, 8, 23, 24)},
    },
    "qwen2": LATER,
    "qwen3": {
        **LATER,
        "attention_bias": {"attention_bias": True},
        "head_dim": {"head_dim": 16},
        "tied with a bias": {"attention_bias": True, "tie_word_embeddings": True},
    },
    "smollm3": {
        "attention_bias": {"attention_bias": True},
        "mlp_bias": {"mlp_bias": True},
        "no_rope_layers": {"no_rope_layers": [0, 1]},
        "no_rope_layer_interval": {"no_rope_layer_interval": 2},
        "sliding_window": {"sliding_window": 8},
        "use_sliding_window": {"use_sliding_window": True, "sliding_window": 8, "no_rope_layers": [0, 1]},
        "layer_types": {"layer_types": ["full_attention", "sliding_attention"], **WINDOW},
        "untied with biases": {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True},
        "window and yarn": {
            "layer_types": ["full_attention", "sliding_attention"],
            **WINDOW,
            **rope("yarn", **YARN),
        },
    },
}
SCALED = ("linear", "llama3", *(name for name in BOTH if name.startswith("yarn")))
ABSENT = {
    "phi3": SCALED,  # which it has as longrope alone
    "gemma2": [name for name in BOTH if name.startswith("hidden_act")],
    "gemma3_text": [
        name for name in BOTH if name.startswith("hidden_act") or "rope_parameters" in BOTH[name]
    ],
}
ALONE = (
    *(
        "llama=attention_bias",
        "llama=mlp_bias",
        "llama=hidden_act",
        "llama=linear",
        "llama=llama3",
        "llama=yarn",
    ),
    *("qwen2=as it is", "qwen2=tie_word_embeddings", "qwen2=use_sliding_window"),
    *("mistral=sliding_window=8", "olmo2=tied with a bias", "qwen3=use_sliding_window"),
    *("gemma2=all at once", "gemma3_text=all at once", "gemma3_text=linear"),
    *("smollm3=use_sliding_window", "phi3=sliding_window=8"),
)


def built(kind: str, **changes: Any) -> Any:
    """A model of transformers at random weights; biases and norms too, or nobody would miss them."""
    make_config, make_model = CLASSES[kind]
    torch.manual_seed(0)
    made = make_model(make_config(**{**SIZES, **changes})).eval()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def saved(made: Any, folder: FilePath) -> FilePath:
    """Its folder, as `save_pretrained` writes it; without progress bars on the way."""
    folder.mkdir(exist_ok=True)
    made.config.save_pretrained(folder)
    tensors = {name: value.contiguous() for name, value in made.state_dict().items()}
    if made.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    safetensors_torch.save_file(tensors, folder / "model.safetensors")
    return folder


def change(folder: FilePath, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def ours(folder: FilePath, shape: LMConfig | None = None) -> CausalLM:
    made = CausalLM(shape or read_shape(folder), torch.Generator().manual_seed(1))
    load_weights(made, folder)
    made.path = Path(LayerPath(KERNELS["sdpa"]))
    return made


def logits(made: CausalLM) -> torch.Tensor:
    return made.logits(made.run(made.embed(IDS)))


@torch.no_grad()
def deviation(found: torch.Tensor, theirs: Any) -> float:
    expected = theirs(IDS).logits
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("case", ALONE)
def test_a_field_off_its_default_is_computed_as_transformers_does(case, tmp_path) -> None:
    kind, _, name = case.partition("=")
    theirs = built(kind, **{**BOTH, **OWN[kind]}[name])
    assert deviation(logits(ours(saved(theirs, tmp_path))), theirs) <= 1e-5


def together(fields: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Sets of changes in which each two that go together are once: a covering array of strength two."""

    def fit(one: dict[str, Any], other: dict[str, Any]) -> bool:
        layers = {"layer_types", "no_rope_layers"}  # which list two of them
        counted = [{*keys} & {"num_hidden_layers"} for keys in (one, other)]
        return not (one.keys() & other.keys() or (counted[0] and other.keys() & layers)) and not (
            counted[1] and one.keys() & layers
        )

    missing = {pair for pair in itertools.combinations(fields, 2) if fit(*(fields[name] for name in pair))}
    while missing:
        chosen: list[str] = list(min(missing))
        for name in fields:
            new = {pair for pair in missing if name in pair and pair[0 if pair[1] == name else 1] in chosen}
            if new and name not in chosen and all(fit(fields[name], fields[other]) for other in chosen):
                chosen.append(name)
        missing -= set(itertools.combinations(sorted(chosen, key=list(fields).index), 2))
        yield {key: value for name in chosen for key, value in fields[name].items()}


@pytest.mark.workloads
@pytest.mark.parametrize("kind", CLASSES)
def test_two_fields_off_their_defaults_are_computed_as_transformers_does(kind, tmp_path) -> None:
    """All pairs of fields, many in each model."""
    own, absent = OWN[kind], ABSENT.get(kind, ())
    fields = {name: one for name, one in {**BOTH, **own}.items() if name in own or name not in absent}
    for changes in together(fields):
        theirs = built(kind, **changes)
        assert deviation(logits(ours(saved(theirs, tmp_path))), theirs) <= 1e-5, changes


@pytest.mark.parametrize("kind", CLASSES)
def test_a_field_that_is_left_out_means_what_it_means_in_transformers(kind, tmp_path) -> None:
    needed = {name: size for name, size in SIZES.items() if name != "max_position_embeddings"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **needed}))
    short = read_shape(tmp_path)
    CLASSES[kind][0](**needed).to_json_file(tmp_path / "config.json", use_diff=False)
    assert read_shape(tmp_path) == short


@pytest.mark.parametrize("kind", CLASSES)
def test_every_field_that_transformers_knows_has_a_case(kind) -> None:
    make_config, _ = CLASSES[kind]
    # Of these there is no other value for a causal language model, or none that reaches the model.
    fixed = {"architectures", "model_type", "is_encoder_decoder", "return_dict", "label2id", "_name_or_path"}
    fixed |= {"use_bidirectional_attention", "_sliding_window_pattern"}
    known = {**BOTH, **OWN[kind]}
    cases = {field for case in known.values() for field in case} | {"transformers_version"}
    unchecked = set(make_config(**SIZES).to_dict()) - cases - fixed
    assert unchecked <= ({"qwen2": {"head_dim"}, "gemma3_text": {"attn_logit_softcapping"}}.get(kind, set()))


@pytest.mark.workloads
@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("hidden_act", {"activation": "silu"}),
        ("hidden_act=gelu_new", {"activation": "silu"}),
        ("rms_norm_eps", {"rms_eps": 1e-6}),
        ("linear", {"rope_theta": 500.0}),
        ("rope_parameters", {"rope_theta": 1e4}),
        ("linear", {"rope_scaling": None}),
        ("llama3", {"rope_scaling": None}),
        ("yarn", {"rope_scaling": None}),
        ("yarn", {"rope_scaling": Yarn(4.0, 64)}),  # as loud as without
        ("yarn, betas", {"rope_scaling": Yarn(4.0, 64, loudness=1.1386294361119891)}),
        ("yarn, truncate", {"rope_scaling": Yarn(4.0, 64, loudness=1.1386294361119891)}),
        ("mistral=sliding_window=8", {"windowed": (1,)}),
        ("mistral=sliding_window=8", {"window": 9}),
        ("qwen2=use_sliding_window", {"windowed": (0, 1)}),
        ("smollm3=no_rope_layers", {"unturned": ()}),
        ("smollm3=use_sliding_window", {"windowed": ()}),
        ("gemma2=query_pre_attn_scalar", {"query_scale": 1.0}),
        ("gemma2=attn_logit_softcapping", {"score_cap": 50.0}),
        ("gemma2=final_logit_softcapping", {"logit_cap": 30.0}),
        ("gemma2=as it is", {"folder_table_scale": 1.0}),
        ("gemma3_text=as it is", {"folder_norm_offset": 0.0}),
        ("gemma3_text=linear", {"local_theta": None}),
    ],
)
def test_a_model_that_ignores_the_field_is_told_apart(name, mutant, tmp_path) -> None:
    kind, _, case = name.partition("=") if name.partition("=")[0] in CLASSES else ("llama", "", name)
    theirs = built(kind, **{**BOTH, **OWN[kind]}[case])
    folder = saved(theirs, tmp_path)
    other = ours(folder, shape=dataclasses.replace(read_shape(folder), **mutant))
    assert deviation(logits(other), theirs) > 3e-4


LOUD: dict[str, Any] = {  # where 3 is no value
    "auto_map": {"AutoConfig": "odd.Odd"},
    "transformers.js_config": {"dtype": "q4"},
    "dtype": "bfloat16",
    "torch_dtype": "bfloat16",
    "attn_implementation": "eager",
    "id2label": {"0": "other", "1": "than", "2": "these"},
    "label2id": {"other": 0, "than": 1, "these": 2},
    "problem_type": "regression",
    "task_specific_params": {"odd": 1},
    "transformers_version": "4.0.0",
    **dict.fromkeys(("initializer_range", "resid_pdrop"), 0.5),
    "output_attentions": True,
    "cache_implementation": "hybrid",
    **dict.fromkeys(("gradient_checkpointing", "is_decoder", "output_hidden_states"), True),
    "return_dict": True,
    "use_cache": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_an_inert_field_changes_nothing_in_transformers_either(kind, tmp_path) -> None:
    theirs = built(kind)
    folder = saved(theirs, tmp_path)
    change(folder, **{name: LOUD.get(name, 3) for name in INERT})
    assert deviation(logits(ours(folder)), theirs) <= 1e-5
    make_config, make_model = CLASSES[kind]
    loud = make_model(make_config.from_json_file(folder / "config.json")).float().eval()
    loud.load_state_dict(theirs.state_dict())
    assert deviation(loud(IDS).logits, theirs) <= 1e-6


def test_old_folders_say_the_same_in_two_fields(tmp_path) -> None:
    theirs = built("llama", **rope("linear", factor=4.0, rope_theta=500.0))
    folder = saved(theirs, tmp_path)
    change(folder, rope_parameters=None, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 4.0})
    assert deviation(logits(ours(folder)), theirs) <= 1e-5


# Tensors


def rewritten(folder: FilePath, to: FilePath, **tensors: torch.Tensor | None) -> FilePath:
    """A copy of a folder with other tensors; None leaves one out."""
    found = safetensors_torch.load_file(folder / "model.safetensors")
    kept = {name: value for name, value in {**found, **tensors}.items() if value is not None}
    (to / "config.json").write_bytes((folder / "config.json").read_bytes())
    safetensors_torch.save_file(kept, to / "model.safetensors")
    return to


def test_a_tied_head_may_stand_twice_and_only_alike(tmp_path) -> None:
    theirs = built("llama", tie_word_embeddings=True)
    folder, copy = saved(theirs, tmp_path / "tied"), tmp_path / "copy"
    copy.mkdir()
    table = theirs.state_dict()["model.embed_tokens.weight"]
    derived = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    found = ours(rewritten(folder, copy, **{"lm_head.weight": table.clone(), **derived}))
    assert deviation(logits(found), theirs) <= 1e-5
    with pytest.raises(ConfigError, match=r"lm_head\.weight has no place"):
        ours(rewritten(folder, copy, **{"lm_head.weight": table + 1}))


@pytest.mark.parametrize("kind", tiered([(kind,) for kind in CLASSES], ("phi3", "gemma3_text")))
def test_shards_in_sixteen_bits_with_both_spellings_of_rope_are_read(kind, tmp_path) -> None:
    theirs = built(kind)
    for parameter in theirs.parameters():
        parameter.data = parameter.data.bfloat16().float()
    folder = saved(theirs, tmp_path)
    whole = safetensors_torch.load_file(folder / "model.safetensors")
    found = {name: one.bfloat16() for name, one in whole.items()}
    (folder / "model.safetensors").unlink()
    places = {name: f"model-{number % 2 + 1:05}-of-00002.safetensors" for number, name in enumerate(found)}
    for file in set(places.values()):
        part = {name: one for name, one in found.items() if places[name] == file}
        safetensors_torch.save_file(part, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    spelled = theirs.config.rope_parameters
    change(folder, rope_scaling=spelled.get("full_attention", spelled))
    check_weights(read_shape(folder), folder)
    assert deviation(logits(ours(folder)), theirs) <= 1e-5
