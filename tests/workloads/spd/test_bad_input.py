"""Mistakes of a person get one sentence, before any work is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.tokens import read_tokens, write_tokens

TOY_TERMS = ("minimality", "stochastic", "stochastic_layerwise")


def token_file(folder: Path, tokens: np.ndarray, vocab: int = 259, tokenizer: str = "") -> Path:
    path = folder / "tokens.bin"
    write_tokens(path, tokens, vocab, tokenizer)
    return path


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
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
        ({"preset": "lm_9l"}, r"workload\.preset=lm_9l .*lm_test"),
        ({"beta": float("nan")}, r"workload\.beta=nan"),
        ({"sigmoid": "swish_hard"}, r"workload\.sigmoid=swish_hard is upstream's and not implemented"),
        ({"sigmoid": "leaky"}, r"workload\.sigmoid=leaky .*leaky_hard"),
        ({"coefficients": {"recon": 1.0}}, r"recon is no term; choose from faithfulness"),
        (
            {"preset": "tms_5-2", "coefficients": dict.fromkeys(TOY_TERMS, 0.0)},
            r"workload\.coefficients=.*leaves a term",
        ),
    ],
)
def test_a_field_that_cannot_be_used_is_named(config, sentence) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SpdConfig(**config)


def test_tokens_of_another_tokenizer_are_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.arange(100), tokenizer="a" * 64)
    assert len(read_tokens(path, 259, "a" * 64).tokens) == 100
    with pytest.raises(ConfigError, match="was made by another tokenizer"):
        read_tokens(path, 259, "b" * 64)
