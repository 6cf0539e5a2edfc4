"""SPD's training as a user would write it for the shared loop is SPD's own to the bit, and resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.spd.maths.losses import learning_rate
from perfsweep.workloads.spd.reference import Reference
from perfsweep.workloads.training import Parts, Training

pytestmark = pytest.mark.workloads

CONFIG = {
    "modules": ["layers.0.attn.q", "layers.1.mlp.fc"],
    "components": 12,
    "seq_len": 8,
    "pgd_steps": 1,
    "clip_components": 0.01,
    "log_every": 1000,
    "eval_every": 1000,
    "save_every": 1000,
}
STEPS = 5


@dataclass
class Config:
    batch_size: int = 1


class Rate(LRScheduler):
    """The learning rate of SPD's recipe."""

    def __init__(self, optimizer: torch.optim.Optimizer, recipe: Any) -> None:
        self.recipe = recipe
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [learning_rate(self.recipe, self.last_epoch)] * len(self.optimizer.param_groups)

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch}


class Drawn:
    """What a checkpoint of SPD holds in addition to values and moments: random state and iteration."""

    def __init__(self, arm: Reference) -> None:
        self.arm = arm

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.arm.draws.generator.get_state(), "step": self.arm.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.arm.draws.generator.set_state(state["generator"])
        self.arm.step = state["step"]


class Decomposing(Training):
    """SPD by `Parts`."""

    Config = Config

    def __init__(self, arm: Reference, batches: list[torch.Tensor]) -> None:
        super().__init__()
        self.arm, self.batches = arm, batches

    def loss(self, _: nn.Module, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        arm, decomposition = self.arm, self.arm.decomposition
        deltas = arm.deltas(decomposition.operands())
        operands = decomposition.operands(deltas)
        arm.draws.begin(slice(None))
        terms, _, _ = arm.microbatch(batch, operands, deltas, arm.exponent(), NullClock())
        arm.step += 1
        return {spec.kind: spec.coeff * terms[spec.kind] for spec in arm.recipe.losses}

    def build(self, config: Any, levels: Any, context: Context) -> Parts:
        arm, recipe = self.arm, self.arm.recipe
        components = nn.ParameterList(arm.decomposition.component_parameters())
        importance = nn.ParameterList(arm.decomposition.importance_parameters())
        return Parts(
            nn.ModuleList([components, importance]),
            loader=lambda **_: self.batches,
            loss=self.loss,
            optimizer=partial(torch.optim.AdamW, lr=recipe.lr, weight_decay=0.0),
            groups=[
                {"params": components, "clip_norm": recipe.clip_components},
                {"params": importance.parameters(), "clip_norm": recipe.clip_importance},
            ],
            schedule=partial(Rate, recipe=recipe),
            state={"drawn": Drawn(arm)},
        )


@pytest.fixture
def batches(start):
    feed = start(config=CONFIG).arm.feed
    return [feed.move(feed.fetch()) for _ in range(STEPS)]


def test_spd_trains_in_the_shared_loop_as_in_its_own_and_resumes(start, run, batches, tmp_path) -> None:
    own, rows = start(config=CONFIG), list[Any]()
    totals = []
    for _ in range(STEPS):
        run(own, 1)
        totals.append(own.arm.total.item())

    def shared(name: str) -> Decomposing:
        (tmp_path / name).mkdir()
        training = Decomposing(start(config=CONFIG).arm, batches)
        training.setup(Config(), {}, Context(Device(), tmp_path / name, tmp_path, log=rows.append))
        return training

    whole, first, second = shared("whole"), shared("first"), shared("second")
    for _ in range(STEPS):
        whole.step(NullClock())
    whole.close()
    assert [row["loss"] for row in rows] == totals
    kinds = {spec.kind for spec in own.arm.recipe.losses}
    assert len(kinds) > 2 and all(kinds < row.keys() for row in rows)
    assert all(sum(row[kind] for kind in kinds) == pytest.approx(row["loss"]) for row in rows)

    for _ in range(2):
        first.step(NullClock())
    second.load_state_dict(first.state_dict())
    for _ in range(STEPS - 2):
        second.step(NullClock())
    expected = own.arm.decomposition.state()
    for training in (whole, second):
        found = training.arm.decomposition.state()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
    first.close()
    second.close()
