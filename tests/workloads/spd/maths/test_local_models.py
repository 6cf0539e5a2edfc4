"""A local GPT-2 is what its folder describes, or is refused by the name of what is not implemented."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths.local_models import HARMLESS, IMPLEMENTED, REQUIRED, load_gpt2
from perfsweep.workloads.spd.maths.target import Gpt2, draw_values
from perfsweep.workloads.spd.presets import TargetSpec
from perfsweep.workloads.weight_files import read_safetensors, read_torch, write_safetensors

TINY = TargetSpec("gpt2", layers=1, width=8, heads=2, kv_heads=2, mlp=32, vocab=50, context=16)
SIZES = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 50, "n_positions": 16}


def values(prefix: str = "") -> dict[str, torch.Tensor]:
    target = Gpt2(TINY)
    draw_values(target, 0)
    return {prefix + name: value for name, value in target.state_dict().items()}


def gpt2_folder(folder: Path, prefix: str = "", fields: Any = None, **extra: torch.Tensor) -> Path:
    (folder / "config.json").write_text(json.dumps({**SIZES, **(fields or {})}))
    write_safetensors(folder / "model.safetensors", {**values(prefix), **extra})
    return folder


def test_it_loads_with_prefix_causal_masks_and_a_head_that_repeats_the_table(tmp_path) -> None:
    table = values()["wte.weight"]
    extra = {"transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16).bool(), "lm_head.weight": table}
    target, spec = load_gpt2(gpt2_folder(tmp_path, "transformer.", **extra))
    expected = Gpt2(TINY)
    draw_values(expected, 0)
    tokens = torch.arange(10).reshape(1, 10)
    assert spec == TINY
    assert torch.equal(target(tokens), expected(tokens))


@pytest.mark.parametrize(
    ("fields", "extra", "sentence"),
    [
        ({}, {"mystery": torch.zeros(1)}, r"hold mystery, which a GPT-2 has not"),
        ({}, {"lm_head.weight": torch.zeros(50, 8)}, r"lm_head\.weight differs from wte\.weight"),
        ({}, {"wte.weight": torch.zeros(51, 8)}, r"wte\.weight is \[51, 8\], and config\.json asks for"),
        ({}, {"wte.weight": torch.zeros(50, 8).to(torch.int8)}, r"holds torch\.int8, .* quantised"),
        ({}, {"transformer.wte.weight": torch.zeros(50, 8)}, r"hold wte\.weight twice"),
        ({"n_layer": 2}, {}, r"the weights lack h\.1\."),
        ({"tie_word_embeddings": False}, {}, r"the weights lack lm_head\.weight"),
        ({"add_cross_attention": True}, {}, r"add_cross_attention=True is not implemented"),
        ({"quantization_config": {"bits": 8}}, {}, r"quantization_config=.* is not implemented"),
        ({"rope_theta": 1e4}, {}, r"has the field rope_theta, which no GPT-2 has"),
        ({"n_head": 3}, {}, r"n_embd=8 is no multiple of n_head=3"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(tmp_path, fields, extra, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_gpt2(gpt2_folder(tmp_path, fields=fields, **extra))


def test_a_folder_without_its_files_is_refused(tmp_path) -> None:
    gpt2_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"holds neither model\.safetensors nor pytorch_model\.bin"):
        load_gpt2(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(ConfigError, match=r"is no whole file of torch\.save"):
        load_gpt2(tmp_path)
    for text in ("[1, 2]", "{"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match=r"needs the config\.json"):
            load_gpt2(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"needs the config\.json"):
        load_gpt2(tmp_path)


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_shards_are_read_together(tmp_path, kind) -> None:
    gpt2_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state, names = values(), sorted(values())
    parts = {f"{kind}-1-of-2": names[:5], f"{kind}-2-of-2": names[5:]}
    for file, inside in parts.items():
        part = {name: state[name] for name in inside}
        if kind.endswith("bin"):
            torch.save(part, tmp_path / file)
        else:
            write_safetensors(tmp_path / file, part)
    index = {"weight_map": {name: file for file, inside in parts.items() for name in inside}}
    (tmp_path / f"{kind}.index.json").write_text(json.dumps(index))
    target, _ = load_gpt2(tmp_path)
    assert all(torch.equal(target.state_dict()[name], value) for name, value in state.items())
    index["weight_map"]["more"] = f"{kind}-1-of-2"
    (tmp_path / f"{kind}.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"1-of-2 lacks more, which .*index\.json says is in it"):
        load_gpt2(tmp_path)
    (tmp_path / f"{kind}-1-of-2").unlink()
    with pytest.raises(ConfigError, match=r"names .*1-of-2, which is not there"):
        load_gpt2(tmp_path)
    (tmp_path / f"{kind}.index.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"index\.json cannot be read"):
        load_gpt2(tmp_path)


def test_a_damaged_weight_file_is_refused(tmp_path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"x": torch.arange(10.0)})
    assert torch.equal(read_safetensors(file)["x"], torch.arange(10.0))
    whole = file.read_bytes()
    for damaged in (whole[:-4], struct.pack("<Q", 10**9), b"", b"\x02\0\0\0\0\0\0\0[]"):
        file.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read"):
            read_safetensors(file)
    file.write_bytes(whole.replace(b'"F32"', b'"F8X"'))
    with pytest.raises(ConfigError, match=r"model\.safetensors cannot be read .*F8X"):
        read_safetensors(file)
    torch.save([1, 2], tmp_path / "list.bin")
    with pytest.raises(ConfigError, match="holds no tensors by name"):
        read_torch(tmp_path / "list.bin")


def test_a_local_gpt2_is_decomposed(start, tmp_path) -> None:
    folder = gpt2_folder(tmp_path)
    np.save(tmp_path / "t.npy", np.random.default_rng(0).integers(0, 50, 4000))
    config = {
        "preset": "gpt2_one",
        "target_path": str(folder),
        "tokens_path": str(tmp_path / "t.npy"),
        "modules": ["h.0.attn.c_attn", "h.0.mlp.*"],
        "components": 6,
        "batch_size": 2,
        "seq_len": 16,
        "warmup_steps": 1,
    }
    workload = start(config=config)
    assert [site.kind for site in workload.arm.sites] == ["conv1d"] * 3
    with pytest.raises(ConfigError, match=r"wpe is never called in a pass of the target"):
        start(config={**config, "modules": ["wpe"], "importance": "mlp"})


OFF_DEFAULT: list[dict[str, Any]] = [
    {},
    *({"activation_function": name} for name in ("gelu", "relu", "silu", "tanh", "gelu_pytorch_tanh")),
    {"layer_norm_epsilon": 0.1},
    {"scale_attn_weights": False},
    {"scale_attn_by_inverse_layer_idx": True},
    {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    {"reorder_and_upcast_attn": True},
    {"tie_word_embeddings": False},
    {"n_inner": 12},
    {"resid_pdrop": 0.9, "embd_pdrop": 0.9, "attn_pdrop": 0.9, "initializer_range": 0.3},
    {"bos_token_id": 3, "eos_token_id": 4, "use_cache": False},
]


@pytest.fixture
def published(tmp_path):
    """Saves a random GPT-2 of transformers; the folder, and its logits of some tokens."""
    transformers = pytest.importorskip("transformers")

    def save(fields: dict[str, Any], **how: Any) -> tuple[Path, torch.Tensor, torch.Tensor]:
        sizes = {"vocab_size": 50, "n_positions": 16, "n_embd": 8, "n_layer": 3, "n_head": 2}
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **fields)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.4)  # biases too: what nobody adds must show
        model.save_pretrained(tmp_path, **how)
        tokens = torch.randint(0, 50, (2, 16))
        with torch.no_grad():
            return tmp_path, tokens, model(tokens).logits

    return save


@pytest.mark.workloads
@pytest.mark.parametrize("fields", OFF_DEFAULT, ids=str)
@pytest.mark.parametrize("fused", [False, True])
def test_every_field_off_its_default_gives_the_published_logits(published, fields, fused) -> None:
    folder, tokens, expected = published(fields)
    target, _ = load_gpt2(folder, fused)
    with torch.no_grad():
        assert (target.eval()(tokens) - expected).abs().max().item() < 2e-5


@pytest.mark.workloads
def test_every_field_that_transformers_writes_is_known() -> None:
    transformers = pytest.importorskip("transformers")
    fields = transformers.GPT2Config().to_dict()
    known = {name for name in fields if name in IMPLEMENTED or name in REQUIRED or HARMLESS.fullmatch(name)}
    assert known == fields.keys()
