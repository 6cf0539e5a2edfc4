"""The reference of trainings is complete and true, and the loop that it writes out trains."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from perfsweep.pipelines.config import training_reference
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.training import Parts, Training, shared_toggles
from perfsweep.workloads.training.loop import Config

PAGE = Path(__file__).parents[3] / "docs" / "training.md"


def test_the_page_of_trainings_is_up_to_date() -> None:
    current = "python -m perfsweep.pipelines.config.training_reference > docs/training.md"
    assert PAGE.read_text() == training_reference.page(), current


def test_every_part_is_described_and_nothing_else() -> None:
    assert list(training_reference.described(Parts)) == [one.name for one in fields(Parts)]


@pytest.mark.parametrize("module", list(training_reference.modules()), ids=lambda module: module.__name__)
def test_everything_that_a_module_defines_has_a_sentence(module: Any) -> None:
    assert module.__doc__
    assert [name for name, value in training_reference.defined(module) if not value.__doc__] == []


class Regression(nn.Module):
    """Takes and gives what a model of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return type("Output", (), {"loss": nn.functional.mse_loss(self.layer(x), y)})


def test_the_loop_that_the_page_writes_out_trains(tmp_path: Path) -> None:
    text = re.search(r"```python\n(Parts\(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text is not None

    class Written(Training):
        Config = Config
        toggles = shared_toggles("amp")

        def build(self, config: Any, levels: Any, context: Context) -> Parts:
            config.steps = 10
            rows = [{"x": torch.ones(3) * row, "y": torch.ones(1)} for row in range(40)]
            names = {"Parts": Parts, "torch": torch, "DataLoader": DataLoader, "OneCycleLR": OneCycleLR}
            given = {"model": Regression(), "rows": rows, "held_out": rows[:5], "pad": None, "config": config}
            return eval(text[1], {**names, **given})

    workload = Written()
    workload.setup(Config(4), {"amp": "off"}, Context(Device(), tmp_path, tmp_path))
    before = workload.numbers()["loss"]
    for _ in range(5):
        workload.step(NullClock())
    assert workload.progress() == 5 * 16
    assert workload.numbers()["loss"] < before
    workload.close()
