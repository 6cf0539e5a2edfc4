"""Mistakes of a person get one sentence, before any work is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.tokens import read_tokens, token_rows, write_tokens
from perfsweep.workloads.spd.workload import Spd

TOY_TERMS = ("minimality", "stochastic", "stochastic_layerwise")


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
        ({"sigmoid": "swish_hard"}, r"workload\.sigmoid=swish_hard is upstream's and not implemented"),
        ({"sigmoid": "leaky"}, r"workload\.sigmoid=leaky .*leaky_hard"),
        ({"hidden": []}, r"workload\.hidden=\[\] .*whole numbers from 1"),
        ({"hidden": [0]}, r"workload\.hidden=\[0\] "),
        ({"counts": {"layers.*": 0}}, r"workload\.counts=.*whole numbers from 1"),
        ({"counts": {"layers.*": 4}, "components": 3}, r"workload\.counts=.*where workload\.modules"),
        ({"coefficients": {"recon": 1.0}}, r"recon is no term; choose from faithfulness"),
        ({"coefficients": {"pgd": -1.0}}, r"workload\.coefficients: pgd=-1\.0"),
        (
            {"preset": "tms_5-2", "coefficients": dict.fromkeys(TOY_TERMS, 0.0)},
            r"workload\.coefficients=.*leaves a term",
        ),
        ({"schedule": "step"}, r"workload\.schedule=step .*cosine"),
        ({"schedule": "constant", "final_lr": 0.5}, r"workload\.final_lr=0\.5 .*workload\.schedule=constant"),
        ({"lr_warmup": 1.5}, r"workload\.lr_warmup=1\.5 .*from 0 to 1"),
        ({"anneal_from": 0.7, "anneal_to": 0.5}, r"workload\.anneal_from=0\.7 .*at most .*0\.5"),
        ({"pnorm": 0.0}, r"workload\.pnorm=0\.0 .*above 0"),
        ({"pgd_init": "zeroes"}, r"workload\.pgd_init=zeroes .*zeros"),
        ({"pgd_step_size": float("nan")}, r"workload\.pgd_step_size=nan"),
        ({"clip_components": -1.0}, r"workload\.clip_components=-1\.0"),
        ({"eval_every": -1}, r"workload\.eval_every=-1"),
        ({"log_every": 0}, r"workload\.log_every=0"),
        ({"vectors_path": "v.npy"}, r"workload\.vectors_path=v\.npy .*without workload\.target"),
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
    with pytest.raises(ConfigError, match=r"needs tokens\.json next to it"):
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
