"""Trainings of LoRA and deep prefixes: all paths train them alike; steps, clip, checkpoints hold them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from added import BOTH, LORA, distance, learn
from torch import Tensor

from perfsweep.workloads.latentwire import reference
from perfsweep.workloads.latentwire.variants import FAST_EXACT


def total_norm(gradients: list[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients]).norm()


# Without the native kernel of the encoder, which takes seconds to build.
FAST = {**FAST_EXACT, "encoder_attn": "sdpa", "products": "library", "effective_batch": 4, "micro_batch": 4}


@pytest.fixture
def apart(evidence_of, deviations) -> Callable[..., float]:
    """How far a step at some levels is from the naive one, additions having learned."""

    def compute(levels: dict[str, Any], **config: Any) -> float:
        arm, reference = (evidence_of(one, 1, learned=True, **config) for one in (levels, {}))
        assert torch.equal(arm.tensors["greedy_ids"], reference.tensors["greedy_ids"])
        return max(deviations(arm, reference).values())

    return compute


PATHS = [
    {"k_loss": "kv", "logits": "slice"},
    {"k_loss": "batched"},
    {"passes": "merged"},
    {"passes": "merged", "logits": "slice", "last_block": "pruned"},
    {"teacher": "slice_header"},
    {"teacher": "cache_h"},
    {"micro_batch": 1, "accum": "backward_each", "model_backward": "per_model"},
    {"passes": "merged", "logits": "slice", "last_block": "pruned", "grad_checkpointing": "on"},
    {"attn": "sdpa", "grad_checkpointing": "selective"},
    {"grad_checkpointing": "on"},
    {"encoder_attn": "native", "encoder_trim": "batch_max", "answer_trim": "batch_max"},
    {"decode": "batched", "sync": "late", "optimizer": "fused", "calibration": "once"},
    {"loader": "resident_index", "bucket": "window"},
]


OPTIONS: list[dict[str, Any]] = [
    *({"state_kd": True, "manifold": True}, {"adaptive_first": True, "norm": "pre"}),
    *({"lora_layers": 1}, {"anchor": "chat"}),
]


@pytest.mark.parametrize(
    ("config", "levels"),
    [
        (BOTH, FAST),
        *(
            pytest.param(*case, marks=pytest.mark.workloads)
            for case in (
                *((config, FAST) for config in (LORA, {"deep_prefix": True})),
                *(({**BOTH, "models": 1}, path) for path in PATHS),
                *(({**BOTH, **config}, {**FAST, "teacher": "slice_header"}) for config in OPTIONS),
            )
        ),
    ],
    ids=lambda one: str(one)[:40],
)
def test_every_path_trains_them_alike(apart, config, levels) -> None:
    """Term by term and in the gradient of every trainable."""
    assert apart(levels, **config) <= 1e-11


@pytest.mark.parametrize(
    "levels", [{**FAST, "lm_dtype": "bf16", "amp": "bf16"}, {"lm_dtype": "bf16"}, {"amp": "bf16"}]
)
@pytest.mark.workloads
def test_sixteen_bits_round_them_and_no_more(evidence_of, deviations, start, levels) -> None:
    found = deviations(*(evidence_of(one, 1, learned=True, dtype="float32", **BOTH) for one in (levels, {})))
    assert 1e-5 < found["gradient"] <= 3e-2 and found["terms"] <= 1e-2
    assert {p.dtype for p in start(levels, **BOTH).arm.parameters} == {torch.float32}


def test_a_training_whose_additions_are_zero_is_the_one_without(start) -> None:
    plain, added = (start(FAST, dtype="float64", **config)._probe_gradient() for config in ({}, LORA))
    assert torch.equal(plain["terms"], added["terms"])
    learned = learn(start(FAST, dtype="float64", **LORA))._probe_gradient()
    assert distance(learned["terms"], plain["terms"]) > 1e-4


@pytest.fixture
def clipped(start, run) -> Callable[[], Iterator[float]]:
    """The norm that a step reports, the norm of all gradients, and what the optimiser sees of it."""

    def compute() -> Iterator[float]:
        made = learn(start({"sync": "late"}, dtype="float64", clip=1e-3, **BOTH))
        probe = made._probe_gradient()["grad_norm"].item()
        modules = [made.arm.encoder, *made.arm.trained]
        seen = {}

        def look(*_):
            seen["norm"] = total_norm(
                [p.grad for module in modules for p in module.parameters() if p.grad is not None]
            )

        made.arm.optimizer.register_step_pre_hook(look)
        made.arm.gradients(next(made.arm.loading))
        gradients = [p.grad for module in modules for p in module.parameters() if p.grad is not None]
        whole = total_norm(gradients).item()
        yield from (made.arm.apply().item(), whole, seen["norm"].item(), probe)

    return compute


@pytest.mark.workloads
def test_the_clip_covers_additions_and_deep_prefixes(clipped, monkeypatch) -> None:
    """Upstream clipped encoder and adapters and let the others' gradients through whole."""
    reported, whole, applied, probe = clipped()
    assert reported == pytest.approx(whole, rel=1e-9) and probe > 0
    assert applied == pytest.approx(1e-3, rel=1e-2)
    groups = reference.groups_of
    missing = {"lora0", "lora1", "deep0", "deep1"}
    monkeypatch.setattr(
        reference,
        "groups_of",
        lambda *parts: {name: group for name, group in groups(*parts).items() if name not in missing},
    )
    reported, whole, applied, _ = clipped()
    assert reported < 0.99 * whole and applied > 2e-3


def test_steps_train_them_and_leave_the_models_alone(start, run) -> None:
    made = start({"passes": "merged"}, **BOTH)
    frozen = {n: p.clone() for m in made.arm.models.values() for n, p in m.lm.named_parameters()}
    before = copy.deepcopy([trained.state_dict() for trained in made.arm.trained])
    run(made, 2)
    for old, trained in zip(before, made.arm.trained, strict=True):
        still = {name for name, value in trained.state_dict().items() if torch.equal(value, old[name])}
        assert not {name for name in still if name.startswith(("lora", "deep"))}
    after = {n: p for m in made.arm.models.values() for n, p in m.lm.named_parameters()}
    assert all(torch.equal(frozen[name], after[name]) for name in frozen)


@pytest.mark.workloads
def test_training_goes_on_where_a_checkpoint_was_taken(start, run) -> None:
    whole = start({"passes": "merged"}, dtype="float64", lr=1e-2, dropout=0.1, **BOTH)
    run(whole, 2)
    state = whole.state_dict()
    run(whole, 2)
    for forget in (False, True):  # the mutant's checkpoint lacks what was added to the models
        again = start({"passes": "merged"}, dtype="float64", lr=1e-2, dropout=0.1, **BOTH)
        kept = [trained.state_dict() for trained in again.arm.trained]
        again.load_state_dict(state)
        if forget:
            for trained, values in zip(again.arm.trained, kept, strict=True):
                trained.load_state_dict(
                    {k: v for k, v in values.items() if k.startswith(("lora", "deep"))}, strict=False
                )
        run(again, 2)
        same = list(again.arm.history) == pytest.approx(list(whole.arm.history)[2:], rel=1e-12)
        assert same != forget


@pytest.mark.workloads
def test_only_the_latent_arm_answers_with_them(start) -> None:
    scores = []
    for learned in (False, True):
        made = start({"decode": "batched"}, dtype="float64", **BOTH)
        scores.append((learn(made) if learned else made).evaluate(3))
    for before, after in zip(*scores, strict=True):
        assert (before.nll == after.nll) == (before.arm != "latent"), before.arm
