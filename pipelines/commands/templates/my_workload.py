"""MyWorkload: what is trained, and what can be switched.

perfsweep check my_workload:MyWorkload               does it keep the rules? half a minute
perfsweep run workload=my_workload:MyWorkload        one trial, with its phases
perfsweep sweep workload=my_workload:MyWorkload      every toggle against its base; my_workload.yaml says
which
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

from perfsweep.workloads.api import Claim, Context, Level, Levels, Toggle
from perfsweep.workloads.training import Parts, Training, shared_toggles


@dataclass
class MyConfig:
    """What is trained. my_workload.yaml sets it, and workload.width=64 on the command line."""

    batch_size: int = 64  # Training needs this one; the rest is yours
    width: int = 64
    rows: int = 2048
    lr: float = 1e-3


class MyData(Dataset[tuple[Tensor, Tensor]]):
    """Rows in place of yours: noisy numbers x [32] and a label y [] in 0..9.

    Everything random is drawn from the seed it is given: two trials with the same seed must see the same
    data.
    """

    def __init__(self, rows: int, seed: int, prepared: bool) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.x = torch.randn(rows, 32, generator=draw)
        self.y = (self.x @ torch.randn(32, 10, generator=draw)).argmax(dim=1)
        self.prepared_rows = rows if prepared else 0
        if prepared:
            self.x = torch.stack([prepare(row) for row in self.x])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        x = self.x[row]
        return (x if self.prepared_rows else prepare(x)), self.y[row]


def prepare(x: Tensor) -> Tensor:
    """A row [32] with mean 0 and spread 1: replace it with decoding, tokenising or augmenting."""
    return (x - x.mean()) / x.std()


class MyWorkload(Training):
    """The loop of `Training`: load a batch, forward, backward, update. `build` says what is trained."""

    Config = MyConfig
    unit = "example"  # what the times are per

    # The first level of a toggle is its baseline.
    toggles = (
        # Shared toggles work as they are; `perfsweep describe my_workload:MyWorkload` shows their levels.
        *shared_toggles(
            "amp",
            "compile",
            "num_workers",
            "pin_memory",
            "non_blocking",
            "optimizer",
            "zero_grad",
            "micro_batch",
        ),
        # One of your own: `build` chooses between its paths. parity says how far a level may move the
        # results: exact (the default: rounding only), tolerance (with bounds), stochastic. The witness is a
        # counter that changes when it acts.
        Toggle(
            "prepare",
            (Level("each_row"), Level("once", witness="prepared_rows")),
            "prepare rows whenever they are asked for, or all of them in set-up",
        ),
    )

    # What was said about a toggle, as data, for comparisons to rule on: low and high bound the speed ratio.
    claims = (
        Claim(
            "preparing once makes it 20 to 50 % faster",
            "my notes",
            "1",
            ({"prepare": "once"},),
            low=1.2,
            high=1.5,
        ),
    )

    def build(self, config: MyConfig, levels: Levels, context: Context) -> Parts:
        """Called in set-up, with torch's generator seeded from context.seed."""
        self.data = MyData(config.rows, context.seed, prepared=levels["prepare"] == "once")
        model = nn.Sequential(nn.Linear(32, config.width), nn.GELU(), nn.Linear(config.width, 10))

        def loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(model(x), y)  # the mean over the rows of a batch

        def optimizer(parameters: Any, **how: Any) -> torch.optim.Optimizer:
            return torch.optim.AdamW(
                parameters, lr=config.lr, **how
            )  # `how` is the level of the toggle optimizer

        # held_out, evaluate, evaluate_every and save_every are parts as well: see
        # perfsweep.workloads.training.parts.
        return Parts(model, self.data, loss, optimizer)

    def counters(self) -> dict[str, float]:
        """Counts for the activity counters of your own toggles, in addition to those of `Training`."""
        return {**super().counters(), "prepared_rows": self.data.prepared_rows}
