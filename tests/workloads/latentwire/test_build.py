"""What is built from levels and configuration: precision, optimiser, frozen models, caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

QUICK = {"passes": "merged", "teacher": "slice"}


@pytest.mark.parametrize(("amp", "on"), [("off", False), ("bf16", True)])
def test_student_teacher_and_encoder_have_one_precision(start, monkeypatch, amp: str, on: bool) -> None:
    workload = start({**QUICK, "amp": amp}, models=1)
    (piece,) = workload.arm.window_of([0, 1]).pieces
    model, seen = workload.arm.models[0], []

    def watch(owner: Any, name: str) -> None:
        calling = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return calling(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(model.lm, "run")
    watch(workload.arm.encoder.bytes, "forward")
    z = workload.arm.latents(piece)
    workload.arm.teach(model, piece.models[0].prompts)
    with workload.arm.autocast():
        workload.arm.ask(model, workload.arm.prefix(model, z), piece.models[0].answer)
    assert len(seen) >= 3 and set(seen) == {on}
    assert z.dtype == torch.float32


def test_the_optimiser_is_the_configurations(start) -> None:
    config = {"lr": 0.5, "weight_decay": 0.25, "clip": 2.0, "epochs": 3}
    arm = start({**QUICK, "optimizer": "fused"}, models=1, **config).arm
    for group in arm.optimizer.param_groups:
        assert (group["lr"], group["weight_decay"], group["fused"]) == (0.5, 0.25, True)
    assert arm.steps == 3 * 4
    assert arm.loss_scale.item() == 1


def test_trainables_are_drawn_by_the_seed_and_frozen_models_by_their_place(start) -> None:
    first, same, other = (start(QUICK, seed=seed) for seed in (1, 1, 2))

    def encoder(workload: Any) -> list[torch.Tensor]:
        return list(workload.arm.encoder.parameters())

    assert all(torch.equal(a, b) for a, b in zip(encoder(first), encoder(same), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(encoder(first), encoder(other), strict=True))
    assert first.arm.fingerprints == other.arm.fingerprints and len(set(first.arm.fingerprints.values())) == 2
    assert set(first.arm.fingerprints) == {0, 1}
    frozen = [p for model in first.arm.models.values() for p in model.lm.parameters()]
    assert not any(p.requires_grad for p in frozen)


def folders(start, **arms: Any) -> dict[str, str]:
    """The folder of the first model's cache, of trainings that differ."""
    found = {}
    for name, (levels, config) in arms.items():
        cache = start({**QUICK, "teacher": "cache_h", **levels}, models=1, **config).arm.caches[0]
        found[name] = str(cache.folder)
    return found


def test_a_teachers_cache_is_of_its_weights_rows_and_numbers_alone(start) -> None:
    found = folders(
        start,
        naive=({}, {}),
        same=({"passes": "separate"}, {"lr": 0.5}),
        early=({}, {"early_tokens": 2}),
        weights=({"lm_dtype": "bf16"}, {}),
        amp=({"amp": "bf16"}, {}),
        rows=({}, {"data_seed": 1}),
    )
    assert found.pop("same") == found["naive"]
    assert len(set(found.values())) == len(found)
