"""Where the values of a target come from, and that a trained one is trained once."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from perfsweep.workloads.spd.config import SpdConfig
from perfsweep.workloads.spd.data.corpus import DRAW_SEED, TOKENS, corpus_file
from perfsweep.workloads.spd.data.loading import Plan
from perfsweep.workloads.spd.data.tokens import feature_rows, token_rows
from perfsweep.workloads.spd.maths.target import build, draw_values
from perfsweep.workloads.spd.presets import PRESETS, TargetSpec
from perfsweep.workloads.spd.training import targets
from perfsweep.workloads.spd.training.targets import load_target, train_language_model, train_toy
from perfsweep.workloads.weight_files import read_safetensors, write_safetensors

TOY = TargetSpec("tms", features=5, hidden=4, values="trained")
FAST = {"steps": 8, "batch": 64, "lr": 0.05}


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "TOY_TRAINING", FAST)
    monkeypatch.setattr(targets, "VECTORS", 1024)


def test_a_toy_learns_from_each_batch_alone_at_a_rate_that_falls_to_nothing(fast: None) -> None:
    """As AdamW is told to do by hand, on the gradient of one batch after the other."""
    by_hand = build(TOY)
    draw_values(by_hand, DRAW_SEED, std=0.3)
    rows = feature_rows(TOY.features, targets.VECTORS, 0.3, DRAW_SEED)
    steps, lr = int(FAST["steps"]), FAST["lr"]
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=lr)
    batches = Plan(len(rows), int(FAST["batch"]), DRAW_SEED).without_end()
    losses = []
    for step in range(steps):
        x = torch.from_numpy(rows.values[next(batches)])
        loss = (by_hand(x) - x).square().mean()
        for parameter, gradient in zip(
            by_hand.parameters(), torch.autograd.grad(loss, list(by_hand.parameters())), strict=True
        ):
            parameter.grad = gradient
        optimizer.param_groups[0]["lr"] = lr * (steps - step) / steps
        optimizer.step()
        losses.append(loss.item())
    found = train_toy(TOY, 0.3)
    for one, other in zip(found.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)
    assert losses[-1] < losses[0]


def toy_config(monkeypatch: pytest.MonkeyPatch, **changes: object) -> SpdConfig:
    recipe = replace(PRESETS["tms_5-2_test"], target=replace(TOY, **changes), activity=0.3)  # type: ignore[arg-type]
    monkeypatch.setitem(PRESETS, "tms_5-2_test", recipe)
    return SpdConfig(preset="tms_5-2_test")


def test_a_target_is_trained_once_and_kept_by_what_it_was_trained_as(
    fast: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(targets, "TOY_TRAINING", {**FAST, "steps": 5})
    config = toy_config(monkeypatch)
    first, spec = load_target(config, tmp_path, fused=False)
    assert spec == config.recipe.target
    assert not any(parameter.requires_grad for parameter in first.parameters())
    (file,) = tmp_path.glob("spd-target-*/model.safetensors")
    assert (file.parent / "config.json").read_text().count('"steps": 5') == 1
    kept = {name: value + 1 for name, value in read_safetensors(file).items()}
    write_safetensors(file, kept)
    again, _ = load_target(config, tmp_path, fused=False)
    assert all(torch.equal(value, kept[name]) for name, value in again.state_dict().items())
    other, _ = load_target(toy_config(monkeypatch, hidden=3), tmp_path, fused=False)
    assert {value.shape for value in other.parameters()} != {value.shape for value in first.parameters()}
    assert len(list(tmp_path.iterdir())) == 2


def test_values_are_in_closed_form_or_drawn_the_same_whatever_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    star, _ = load_target(toy_config(monkeypatch, values="analytic", hidden=2), tmp_path, fused=False)
    angles = [2 * math.pi * i / 5 for i in range(5)]
    points = torch.tensor([[math.cos(angle), math.sin(angle)] for angle in angles])
    assert torch.allclose(star.get_parameter("linear1.weight").T, points, atol=1e-6)
    drawn = [load_target(toy_config(monkeypatch, values="random"), tmp_path, fused=False)[0] for _ in "ab"]
    one, two = (net.state_dict() for net in drawn)
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    assert one["linear1.weight"].std() > 0
    assert not list(tmp_path.iterdir())


def test_somebodys_network_says_its_vocabulary_itself(network: torch.nn.Module, tmp_path: Path) -> None:
    config = SpdConfig(
        target="tests:Network", tokens_path="given", modules=["body.0"], components=3, seq_len=7
    )
    target, spec = load_target(config, tmp_path, fused=False, given=network.double())
    assert (spec.vocab, spec.context) == (12, 7)
    assert {value.dtype for value in target.parameters()} == {torch.float32}


@pytest.mark.workloads
def test_a_trained_language_model_has_learnt_its_corpus(
    monkeypatch: pytest.MonkeyPatch, cache_dir: Path
) -> None:
    monkeypatch.setattr(targets, "LM_TRAINING", {"steps": 25, "batch": 8, "lr": 1e-2})
    config = SpdConfig(preset="lm_test")
    spec = replace(config.recipe.target, layers=1, width=16, mlp=16, context=8)
    _, held_out = token_rows(corpus_file(spec.corpus, spec.vocab, TOKENS, cache_dir), 8, 8, 8)
    tokens = torch.from_numpy(held_out.values[:64].astype("int64"))
    net = train_language_model(spec, config, cache_dir)
    loss = F.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert loss < 0.85 * math.log(spec.vocab)
