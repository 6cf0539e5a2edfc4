"""Mistakes of a person get one sentence, before any work is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.tokens import read_tokens, write_tokens
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
        ({"preset": "lm_9l"}, r"workload\.preset=lm_9l .*lm_test"),
        ({"seq_len": 65}, r"workload\.seq_len=65 .*at most 64, the context"),
        ({"preset": "tms_5-2", "seq_len": 4}, r"workload\.seq_len=4 .*toy"),
        ({"microbatches": 3}, r"workload\.microbatches=3 .*divisor of the 4 rows"),
        ({"beta": float("nan")}, r"workload\.beta=nan"),
        ({"losses": "some"}, r"workload\.losses=some .*layerwise"),
        ({"importance": "transformer"}, r"workload\.importance=transformer .*shared_mlp"),
        ({"sigmoid": "swish_hard"}, r"workload\.sigmoid=swish_hard is upstream's and not implemented"),
        ({"sigmoid": "leaky"}, r"workload\.sigmoid=leaky .*leaky_hard"),
        ({"coefficients": {"recon": 1.0}}, r"recon is no term; choose from faithfulness"),
        (
            {"preset": "tms_5-2", "coefficients": dict.fromkeys(TOY_TERMS, 0.0)},
            r"workload\.coefficients=.*leaves a term",
        ),
        ({"schedule": "step"}, r"workload\.schedule=step .*cosine"),
        ({"pgd_init": "zeroes"}, r"workload\.pgd_init=zeroes .*zeros"),
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


def test_tokens_of_another_tokenizer_are_refused(tmp_path) -> None:
    path = token_file(tmp_path, np.arange(100), tokenizer="a" * 64)
    assert len(read_tokens(path, 259, "a" * 64).tokens) == 100
    with pytest.raises(ConfigError, match="was made by another tokenizer"):
        read_tokens(path, 259, "b" * 64)
