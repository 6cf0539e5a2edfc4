"""Anybody's network as a target: what it must be, what is refused, and that every exact form agrees on it."""

# Drives `declaration` of perfsweep.workloads.spd, and `masked_products` of perfsweep.workloads.spd.maths.
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gradients_apart import worst
from tables.spd import FAST
from torch import nn

from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads import registry
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.maths.masked_products import Call
from perfsweep.workloads.spd.training.targets import Given
from perfsweep.workloads.spd.workload import Spd

OWN: dict[str, Any] = {
    "target": "tests:Network",
    "tokens_path": "given",
    "modules": ["body.*", "out"],
    "components": 5,
    "seq_len": 5,
    "eval_every": 0,
    "save_every": 0,
}
FILE = """
import torch
from torch import nn


class Parts:
    def __init__(self, logits):
        self.logits = logits


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.inner = nn.Embedding(12, 6), nn.Linear(6, 6)
        self.out = nn.Linear(6, self.inner.out_features * 2)

    def forward(self, tokens):
        return Parts(self.out(self.inner(self.embed(tokens)).relu()))


def build():
    return Small()


def fails():
    raise OSError("no weights here")


def number():
    return 3
"""


class Tried(nn.Module):
    """A network with one linear layer that is used as told."""

    def __init__(self, use: Any) -> None:
        super().__init__()
        self.embed, self.layer, self.use = nn.Embedding(12, 12), nn.Linear(12, 12), use

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.use(self.embed(tokens), self.layer)


def test_exact_forms_agree_on_a_network_of_ones_own(gradients_of, network, tokens) -> None:
    given = {"config": {**OWN, "dtype": "float64"}, "given": Given(network, tokens)}
    naive, fast = (gradients_of(**given, **levels) for levels in ({}, FAST))
    assert worst(fast, naive) <= 1e-12


def test_a_network_from_a_file_is_trained_on_the_users_tokens(start, run, tokens, tmp_path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    np.save(tmp_path / "t.npy", tokens.reshape(-1))
    config = {
        **OWN,
        "target": f"{tmp_path / 'mine.py'}:build",
        "output_part": "logits",
        "tokens_path": str(tmp_path / "t.npy"),
        "modules": ["inner", "out"],
        "eval_every": 1,
    }
    rows: list[Any] = []
    workload = start(config=config, log=rows.append, patching="wrapper", delta="folded")
    run(workload, 1)
    assert [site.name for site in workload.arm.sites] == ["inner", "out"]
    assert np.isfinite(rows[0]["eval/ce/target"])
    assert workload.work().flops is None


def test_a_network_that_reads_vectors_is_compared_by_squares(start, run, tmp_path) -> None:
    module = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 5))
    vectors = np.random.default_rng(0).random((400, 5))
    config = {**OWN, "vectors_path": "given", "tokens_path": None, "modules": ["*"], "seq_len": None}
    rows: list[Any] = []
    workload = start(
        config={**config, "eval_every": 1, "batch_size": 8}, given=Given(module, vectors), log=rows.append
    )
    run(workload, 1)
    assert workload.arm.rows.vectors
    assert not any(name.startswith("eval/ce/") for name in rows[0])
    with torch.no_grad():
        batch = workload.arm.first_batch()
        ones = workload.arm.run(batch, Call())
    torch.testing.assert_close(ones, module(batch))


def test_its_file_belongs_to_what_decides_on_results(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    config = SpdConfig(**{**OWN, "target": f"{file}:build"})
    cls = Spd.configured(config)
    before = registry.digest(registry.sources(cls))
    assert file in registry.sources(cls)
    assert Spd.configured(SpdConfig()) is Spd
    file.write_text(FILE + "# changed\n")
    assert registry.digest(registry.sources(cls)) != before


def test_a_file_is_found_from_wherever_the_trial_runs(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    np.save(tmp_path / "given.npy", np.arange(9))
    monkeypatch.chdir(tmp_path)
    config = SpdConfig(**{**OWN, "target": "mine.py:build", "tokens_path": "given.npy"})
    assert Spd.planned(config).target == f"{tmp_path}/mine.py:build"


@pytest.mark.parametrize(
    "levels",
    [
        {"prefix_reuse": "on"},
        {"grad_checkpointing": "per_block"},
        {"fused_target_ops": "on"},
        {"gradients": "formulas"},
    ],
    ids=str,
)
def test_toggles_that_need_stages_or_formulas_are_refused(levels) -> None:
    space = Space(Spd.toggles, SpdConfig(**OWN))
    with pytest.raises(ConfigError, match=r"no stages and no head are known|formulas are those of a toy"):
        space.legal(space.closure(levels))


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("absent", r"has no function absent"),
        ("fails", r"fails\(\) fails: OSError: no weights here"),
        ("number", r"number\(\) returns int, no nn\.Module"),
        ("build", r"the network returns Parts, and a tensor is needed: its tensors are logits"),
    ],
)
def test_a_factory_that_makes_no_target_is_named(start, tmp_path, factory, sentence) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(ConfigError, match=sentence):
        start(config={**OWN, "target": f"{tmp_path / 'mine.py'}:{factory}"})


def test_a_module_that_cannot_be_imported_is_named(start, tmp_path) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    with pytest.raises(ConfigError, match=r"broken\.py cannot be imported: ModuleNotFoundError"):
        start(config={**OWN, "target": f"{tmp_path / 'broken.py'}:build"})
    with pytest.raises(ConfigError, match=r"not\.there cannot be imported: ModuleNotFoundError"):
        start(config={**OWN, "target": "not.there:build"})


@pytest.mark.parametrize(
    ("module", "modules", "sentence"),
    [
        (Tried(lambda x, layer: layer(layer(x))), ["layer"], r"layer is called 2 times"),
        (Tried(lambda x, layer: x @ layer.weight), ["layer"], r"layer is called 0 times"),
        (Tried(lambda x, layer: layer(x[:, :1]) + x), ["layer"], r"layer reads \[4, 1, 12\]"),
        (Tried(lambda x, layer: layer(input=x)), ["layer"], r"layer reads not one tensor"),
        (Tried(lambda x, layer: layer(x).mean(1)), ["layer"], r"returns \[1, 12\] for positions \[1, 5\]"),
        (Tried(lambda x, layer: layer(x[..., :3])), ["layer"], r"fails on a batch .* RuntimeError"),
        (Tried(lambda x, layer: (layer(x), 1)), ["layer"], r"returns tuple, and a tensor is needed"),
    ],
)
def test_a_network_that_cannot_be_decomposed_so_is_refused_with_the_module(
    start, tokens, module, modules, sentence
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        start(config={**OWN, "modules": modules, "importance": "mlp"}, given=Given(module, tokens))


@pytest.mark.workloads
def test_a_module_of_transformers_is_decomposed(gradients_of, tokens) -> None:
    transformers = pytest.importorskip("transformers")
    made = transformers.GPT2Config(vocab_size=12, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(made)
    config = {**OWN, "modules": ["transformer.h.*.mlp.*"], "output_part": "logits", "dtype": "float64"}
    naive, fast = (gradients_of(config=config, given=Given(model, tokens), **levels) for levels in ({}, FAST))
    assert "components.transformer-h-0-mlp-c_fc.V" in naive
    assert worst(fast, naive) <= 1e-10
