"""Mistakes of a person get one sentence, before any work is lost."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from pipelines.plan.arms import Space
from workloads.api import Device
from workloads.errors import ConfigError
from workloads.spd.config import SpdConfig
from workloads.spd.data.tokens import read_tokens, token_rows, write_tokens
from workloads.spd.maths.local_models import load_gpt2
from workloads.spd.maths.weight_files import read_safetensors, write_safetensors
from workloads.spd.maths.target import Gpt2, draw_values
from workloads.spd.presets import TargetSpec
from workloads.spd.training import checkpoints
from workloads.spd.workload import Spd

TINY = TargetSpec("gpt2", layers=1, width=8, heads=2, kv_heads=2, mlp=32, vocab=50, context=16)


def token_file(folder: Path, tokens: np.ndarray, vocab: int = 259, tokenizer: str = "") -> Path:
    path = folder / "tokens.bin"
    write_tokens(path, tokens, vocab, tokenizer)
    return path


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"modules": ["layers.*.nothing"]}, r"pattern 'layers\.\*\.nothing' matches no module"),
        ({"modules": ["layers.0.attn.?", "layers.0.attn.q"]}, r"layers\.0\.attn\.q is matched twice"),
        ({"modules": ["embed"]}, r"embed is an embedding and takes only mlp"),
        ({"resume": "/nowhere/checkpoint.pt"}, r"workload\.resume=/nowhere/checkpoint\.pt does not exist"),
        (
            {"tokens_path": "/nowhere/tokens.bin"},
            r"workload\.tokens_path=/nowhere/tokens\.bin does not exist",
        ),
    ],
)
def test_what_does_not_fit_the_target_is_said_before_the_first_iteration(start, config, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        start(config=config)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"components": 0}, r"workload\.components=0 .*whole number from 1"),
        ({"components": -3}, r"workload\.components=-3 "),
        ({"preset": "lm_9l"}, r"workload\.preset=lm_9l .*lm_test"),
        ({"seq_len": 65}, r"workload\.seq_len=65 .*at most 64, the context"),
        ({"preset": "tms_5-2", "seq_len": 4}, r"workload\.seq_len=4 .*toy"),
        ({"batch_size": 0}, r"workload\.batch_size=0"),
        ({"modules": []}, r"workload\.modules=\[\] .*a list of patterns"),
        ({"microbatches": 3}, r"workload\.microbatches=3 .*divisor of the 4 rows"),
        ({"pgd_steps": -1}, r"workload\.pgd_steps=-1"),
        ({"lr": 0.0}, r"workload\.lr=0"),
        ({"beta": float("nan")}, r"workload\.beta=nan"),
        ({"losses": "some"}, r"workload\.losses=some .*layerwise"),
        ({"importance": "transformer"}, r"workload\.importance=transformer .*shared_mlp"),
        ({"dtype": "float16"}, r"workload\.dtype=float16"),
        (
            {"preset": "gpt2_one", "target_path": "openai-community/gpt2"},
            r"is no folder on this machine: nothing is downloaded",
        ),
        ({"target_path": "/"}, r"workload\.preset=lm_test .*GPT-2"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(config, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SpdConfig(**config)


def test_pieces_of_a_batch_cannot_share_adversarial_sources() -> None:
    space = Space(Spd.toggles, SpdConfig(microbatches=2), Device())
    with pytest.raises(
        ConfigError, match=r"microbatches=2 cannot share adversarial sources \(workload\.pgd_scope=shared\)"
    ):
        space.legal({})


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.array([1, 2, 259] * 50), vocab=300)
    with pytest.raises(
        ConfigError, match=r"holds token id 259, and the vocabulary of the target ends at 258"
    ):
        read_tokens(path, vocab=259)


def test_a_truncated_token_file_is_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.arange(100))
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(
        ConfigError, match=r"is truncated or foreign: tokens\.json promises 100 tokens of 2 bytes"
    ):
        read_tokens(path, vocab=259)


def test_a_token_file_without_its_description_is_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.arange(100))
    path.with_suffix(".json").write_text("{")
    with pytest.raises(ConfigError, match=r"needs tokens\.json beside it"):
        read_tokens(path, vocab=259)
    path.with_suffix(".json").write_text('{"dtype": "uint16"}')
    with pytest.raises(ConfigError, match="lacks data_sha256"):
        read_tokens(path, vocab=259)


def test_tokens_of_another_tokenizer_are_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.arange(100), tokenizer="a" * 64)
    assert len(read_tokens(path, 259, "a" * 64).tokens) == 100
    with pytest.raises(ConfigError, match="was made by another tokenizer"):
        read_tokens(path, 259, "b" * 64)


def test_rows_longer_than_the_context_or_too_few_are_refused(tmp_path) -> None:
    found = read_tokens(token_file(tmp_path, np.arange(100)), 259)
    with pytest.raises(ConfigError, match="longer than the target's context of 16"):
        token_rows(found, seq=32, context=16, batch=1)
    with pytest.raises(ConfigError, match=r"too few for workload\.batch_size=64"):
        token_rows(found, seq=8, context=16, batch=64)


@pytest.mark.parametrize(
    ("array", "sentence"), [(np.zeros(4), "whole numbers"), (np.array([3, -1]), "negative token id -1")]
)
def test_arrays_that_are_no_tokens_are_refused(tmp_path, array, sentence) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(ConfigError, match=sentence):
        read_tokens(tmp_path / "t.npy", 259)


def test_a_checkpoint_of_another_architecture_is_refused(start, run) -> None:
    quiet = {"log_every": 1000, "eval_every": 1000}
    small = start(config={**quiet, "components": 8, "save_every": 1})
    run(small, 1)
    file = str(small.context.scratch_dir / "checkpoint.pt")
    with pytest.raises(ConfigError, match="the checkpoint belongs to another architecture"):
        start(config={**quiet, "components": 9, "resume": file})
    with pytest.raises(ConfigError, match="the checkpoint belongs to another architecture"):
        start(config={**quiet, "components": 8, "modules": ["layers.0.attn.q"], "resume": file})


def test_what_is_no_checkpoint_is_refused(tmp_path) -> None:
    (tmp_path / "c.pt").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="is no whole checkpoint"):
        checkpoints.read(tmp_path / "c.pt")


@pytest.mark.parametrize(
    "foreign", [{"model": torch.ones(1)}, [1, 2], {"step": 3, "values": {}}], ids=["names", "list", "parts"]
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, foreign) -> None:
    torch.save(foreign, tmp_path / "c.pt")
    with pytest.raises(
        ConfigError, match=r"is no checkpoint of SPD: it lacks .*generator.*; give another one"
    ):
        checkpoints.read(tmp_path / "c.pt")


def gpt2_folder(folder: Path, prefix: str = "", **extra: torch.Tensor) -> Path:
    target = Gpt2(TINY)
    draw_values(target, 0)
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    (folder / "config.json").write_text(json.dumps(sizes))
    state = {prefix + name: value for name, value in target.state_dict().items()}
    write_safetensors(folder / "model.safetensors", {**state, **extra})
    return folder


def test_a_local_gpt2_loads_with_prefix_causal_masks_and_tied_head(tmp_path) -> None:
    extra = {"transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16), "lm_head.weight": torch.zeros(50, 8)}
    target, spec = load_gpt2(gpt2_folder(tmp_path, "transformer.", **extra))
    expected = Gpt2(TINY)
    draw_values(expected, 0)
    tokens = torch.arange(10).reshape(1, 10)
    assert spec == TINY
    assert torch.equal(target(tokens), expected(tokens))


def test_weights_that_are_no_gpt2_are_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"hold mystery, which a GPT-2 has not"):
        load_gpt2(gpt2_folder(tmp_path, mystery=torch.zeros(1)))
    (tmp_path / "config.json").write_text(
        json.dumps({"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 50, "n_ctx": 16})
    )
    with pytest.raises(ConfigError, match=r"the weights lack h\.1\."):
        load_gpt2(gpt2_folder_without_config(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"needs the config\.json"):
        load_gpt2(tmp_path)


def gpt2_folder_without_config(folder: Path) -> Path:
    kept = (folder / "config.json").read_text()
    gpt2_folder(folder)
    (folder / "config.json").write_text(kept)
    return folder


def test_a_truncated_weight_file_is_refused(tmp_path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"x": torch.arange(10.0)})
    assert torch.equal(read_safetensors(file)["x"], torch.arange(10.0))
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ConfigError, match="is no whole safetensors file"):
        read_safetensors(file)
    file.write_bytes(struct.pack("<Q", 10**9))
    with pytest.raises(ConfigError, match="is no whole safetensors file"):
        read_safetensors(file)


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
    }
    workload = start(config=config)
    assert [site.kind for site in workload.builder.sites] == ["conv1d"] * 3
