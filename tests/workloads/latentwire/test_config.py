"""What a LatentWire training accepts: the edge of every field, and what follows from several of them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire.config import LatentWireConfig
from perfsweep.workloads.latentwire.presets import LMS

SMALLEST: list[tuple[str, Any, Any]] = [
    *((name, 1, 0) for name in ("epochs", "log_every", "eval_rows", "max_new", "max_prompt")),
    ("held_out", 1, 0),
    *((name, 1, 0) for name in ("data_n", "memory_mb", "lora_rank")),
    ("eval_every", 0, -1),
    ("oom_above", 0, -1),
    ("models", 1, 0),
    ("models", 2, 3),
    *((name, 1e-9, 0.0) for name in ("lr", "clip", "lora_alpha")),
    *((name, 1e9, math.inf) for name in ("lr", "clip", "lora_alpha", "weight_decay")),
    ("weight_decay", 0.0, -1e-9),
    ("dropout", 0.0, -0.1),
    ("dropout", 0.99, 1.0),
    *((name, 1, 0) for name in ("latents", "early_tokens", "encoder_layers", "max_bytes")),
    ("early_tokens", 16, 17),
    ("answer_tokens", 4, 3),  # the preset has four early tokens
    ("latent_width", 8, 12),
]
WORDS = {
    "preset": ("test", "demo", "count", "full", "full8b", "quality"),
    "data_format": ("auto", "squad", "hotpot", "flat"),
    "unanswerable": ("filter", "eos"),
    "tokenizer": ("auto", "bpe", "bytes"),
    "anchor": ("text", "chat", "none"),
    "norm": ("post", "pre"),
    "dtype": ("float32", "float64"),
    "teacher_fill": ("setup", "lazy"),
}


@pytest.mark.parametrize(("name", "last", "beyond"), SMALLEST)
def test_the_last_value_that_can_be_used_is_and_the_next_is_not(name: str, last: Any, beyond: Any) -> None:
    assert getattr(LatentWireConfig(**{name: last}), name) == last
    refused = "early_tokens" if name == "answer_tokens" else name
    with pytest.raises(ConfigError, match=rf"^workload\.{refused}=\S+ cannot be used: it must be "):
        LatentWireConfig(**{name: beyond})


def test_additions_to_a_part_of_a_joined_matrix_are_refused() -> None:
    joined = dataclasses.replace(LMS["nano-l"], joined_folder=True)
    LatentWireConfig(lora_rank=2, lora_targets=["o", "down"]).require_targets([joined])
    LatentWireConfig(lora_rank=2).require_targets([LMS["nano-l"]])
    LatentWireConfig().require_targets([joined])
    with pytest.raises(
        ConfigError, match=r"lora_targets=.* must be some of o, down: this model's folder joins"
    ):
        LatentWireConfig(lora_rank=2).require_targets([LMS["nano-l"], joined])


@pytest.mark.parametrize("name", WORDS)
def test_words_are_these_and_no_others(name: str) -> None:
    for word in WORDS[name]:
        LatentWireConfig(**{name: word})
    with pytest.raises(ConfigError, match=f"{name}=other .* one of {', '.join(WORDS[name])}$"):
        LatentWireConfig(**{name: "other"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lora_targets": []}, "lora_targets=.* a list of some of q, k, v, o, gate, up, down, each once"),
        ({"lora_targets": ["q", "z"]}, "lora_targets=.* each once"),
        ({"lora_targets": ["q", "q"]}, "lora_targets=.* each once"),
        ({"lora_targets": ["q"]}, "lora_targets=.*does nothing while workload.lora_rank is null"),
        ({"lora_layers": 2}, "lora_layers=2 does nothing while workload.lora_rank is null"),
        ({"lora_layers": 4, "lora_rank": 2}, "lora_layers=4 .* at most 3, a model's layers"),
        ({"lora_layers": 0, "lora_rank": 2}, "lora_layers=0 .* at least 1, or null"),
    ],
)
def test_low_rank_additions_that_cannot_be_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        LatentWireConfig(**given)


def test_additions_are_no_deeper_than_the_shallowest_model() -> None:
    config = LatentWireConfig(lora_rank=1, lora_layers=3, lm_path="a")
    config.require_depth([LMS["count-l"], LMS["mid-l"]])
    with pytest.raises(ConfigError, match="at most 2"):
        config.require_depth([LMS["count-l"], LMS["nano-q"]])


def test_models_with_random_weights_that_take_no_part_limit_nothing() -> None:
    LatentWireConfig(preset="full", models=1, lora_rank=1, lora_layers=16)  # of 16 and 24 layers
    with pytest.raises(ConfigError, match="at most 16"):
        LatentWireConfig(preset="full", lora_rank=1, lora_layers=17)


@pytest.mark.parametrize(
    ("path", "folders"), [(None, []), ("a", ["a"]), ("a, b/c ", ["a", "b/c"]), ("a,,b", ["a", "b"])]
)
def test_local_models_are_named_by_commas(path: str | None, folders: list[str]) -> None:
    config = LatentWireConfig(lm_path=path)
    assert config.lm_folders == list(map(Path, folders))
    assert config.model_count == (len(folders) or 2)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lm_path": " , "}, "lm_path= , .* one folder, or two separated by a comma"),
        ({"lm_path": "a,b,c"}, "lm_path=.* one folder, or two"),
        ({"lm_path": "a,b", "models": 1}, "models=1 .* it must be 2, the folders of lm_path"),
        ({"lm_path": "a", "tokenizer": "bpe"}, "tokenizer=bpe .* auto: the folders of lm_path bring"),
    ],
)
def test_local_models_that_cannot_be_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        LatentWireConfig(**given)


def test_files_and_folders_are_read_from_wherever_the_trial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = LatentWireConfig(data="q.json", lm_path="a,b", resume="kept").absolute()
    assert config.data == str(tmp_path / "q.json")
    assert config.lm_path == f"{tmp_path / 'a'},{tmp_path / 'b'}"
    assert config.resume == str(tmp_path / "kept")
    generated = LatentWireConfig(data="hotpot")
    assert generated.absolute() == generated
