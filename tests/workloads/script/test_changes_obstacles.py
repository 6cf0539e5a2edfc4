"""Why a change cannot act on a script, from what was seen of it: rule by rule, without running one."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfsweep.workloads.script.changes import copies, loaders, modules, settings, updates

IMAGES = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU())
HALF = nn.Linear(2, 2).to(torch.bfloat16)
DOUBLE = nn.Linear(2, 2).double()
REPEATS = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ModuleList([nn.Sequential(nn.ReLU())]), nn.Linear(2, 2))


class Seen:
    """Counts of an iteration that was watched."""

    def __init__(self, **facts: Any) -> None:
        self.closures: set[str] = facts.pop("closures", set())
        self.input_dims: dict[nn.Module, set[int]] = facts.pop("dims", {})
        self.epoch: bool = facts.pop("epoch", True)
        self.made: list[torch.optim.Optimizer] = facts.pop("made", [])
        self.counts = Counter(facts)

    def total(self, name: str) -> int:
        return self.counts[name]


def scene(**facts: Any) -> Any:
    """A scene in which no change has an obstacle but for what is given."""
    own = SimpleNamespace(reasons=facts.pop("reasons", {}), drops_gradients=facts.pop("drops", set()))
    given = {
        "modules": [nn.Linear(2, 2)],
        "blocks": "",
        "levels": {},
        "attention": SimpleNamespace(before=1),
        "updates": SimpleNamespace(asked=set()),
        **{
            name: facts.pop(name)
            for name in ("modules", "blocks", "levels", "attention", "updates")
            if name in facts
        },
    }
    seen = {"backward_calls": 1, "optimizer_steps": 1, "batches": 1, "pinned_batches": 1, **facts}
    return SimpleNamespace(own=own, watched=Seen(**seen), **given)


RULES: list[tuple[Any, Any, dict[str, Any], str | None]] = [
    (
        settings.attention_obstacle,
        "math",
        {"attention": SimpleNamespace(before=0)},
        "is not seen to call scaled_dot",
    ),
    (settings.attention_obstacle, "math", {}, None),
    (settings.attention_obstacle, "math", {"reasons": {"sdpa": "chooses"}}, "chooses itself"),
    (modules.compile_obstacle, "default", {}, None),
    (modules.compile_obstacle, "default", {"modules": []}, "calls no module with parameters"),
    (modules.late_compile_obstacle, "default", {"drops": {False}, "backward_calls": 2}, None),
    (modules.late_compile_obstacle, "reduce_overhead", {"levels": {"zero_grad": "zero"}}, "zeroes gradients"),
    (copies.obstacle, "on", {}, None),
    (loaders.keep_obstacle, "kept", {}, None),
    (
        modules.recompute_obstacle,
        "on",
        {"reasons": {"grad_checkpointing": "recomputes"}},
        "recomputes itself",
    ),
    (modules.recompute_obstacle, "on", {"modules": []}, "calls no module with parameters"),
    (updates.obstacle, "fused", {"made": [torch.optim.LBFGS(HALF.parameters())]}, "has no optimiser with a"),
    (modules.amp_obstacle, "bf16", {"reasons": {"amp": "autocasts"}}, "autocasts itself"),
    (modules.amp_obstacle, "bf16", {"modules": [HALF]}, "keeps its parameters in 16 bits itself"),
    (modules.amp_obstacle, "bf16", {"modules": [HALF, IMAGES]}, None),
    (modules.amp_obstacle, "bf16", {"modules": [DOUBLE]}, "keeps its parameters in float64"),
    (modules.amp_obstacle, "fp16", {"closures": {"LBFGS"}}, "computes gradients in a closure that LBFGS"),
    (modules.amp_obstacle, "fp16", {"backward_calls": 0}, "is not seen to call backward"),
    (
        modules.compile_obstacle,
        "default",
        {"reasons": {"compile": "calls torch.compile"}},
        "calls torch.compile itself",
    ),
    (modules.late_compile_obstacle, "reduce_overhead", {"drops": {False}}, "zeroes gradients, whose memory"),
    (
        modules.late_compile_obstacle,
        "reduce_overhead",
        {"drops": {False}, "levels": {"zero_grad": "none"}},
        None,
    ),
    (modules.late_compile_obstacle, "reduce_overhead", {"backward_calls": 2}, "adds up gradients of several"),
    (copies.obstacle, "on", {"pinned_batches": 0}, "has no batches in pinned memory"),
    (updates.reset_obstacle, "zero", {"drops": {False}}, "zeroes its gradients itself"),
    (updates.reset_obstacle, "none", {"drops": {True}}, "drops its gradients itself"),
    (updates.late_reset_obstacle, "none", {}, "does not call zero_grad"),
    (loaders.keep_obstacle, "kept", {"batches": 0}, "trains on no batch of a DataLoader"),
    (loaders.keep_obstacle, "kept", {"epoch": False}, "reads a stream"),
    (modules.layout_obstacle, "on", {"modules": [IMAGES], "dims": {IMAGES: {4}}}, None),
    (modules.layout_obstacle, "on", {}, "has no convolution over images"),
    (modules.layout_obstacle, "on", {"modules": [IMAGES], "dims": {IMAGES: {2}}}, "passes no images"),
    (modules.recompute_obstacle, "on", {"modules": [REPEATS], "blocks": "Linear"}, None),
    (modules.recompute_obstacle, "on", {"modules": [REPEATS]}, "repeats Sequential: name one"),
    (
        modules.recompute_obstacle,
        "on",
        {"modules": [IMAGES], "blocks": "Block"},
        "has no module of the class Block; it repeats no class of modules",
    ),
    (updates.obstacle, "fused", {"made": [torch.optim.AdamW(HALF.parameters())]}, None),
    (updates.obstacle, "fused", {"updates": SimpleNamespace(asked={"fused"})}, "passes fused=True to its"),
    (updates.obstacle, "fused", {}, "makes no optimiser"),
]


@pytest.mark.parametrize(
    ("rule", "level", "facts", "reason"),
    RULES,
    ids=[f"{one[0].__module__.rpartition('.')[2]} {number}" for number, one in enumerate(RULES)],
)
def test_an_obstacle_is_named_where_there_is_one(
    rule: Any, level: Any, facts: dict[str, Any], reason: str | None
) -> None:
    said = rule(scene(**facts), level)
    assert said is None if reason is None else said is not None and said.startswith(reason), said
