"""References of options and trainings, and the options as types: complete, true, up to date and light."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import library_page
import options_page
import pytest
import torch
import typed_options
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from perfsweep.fields import default_of
from perfsweep.pipelines.commands import dispatch
from perfsweep.pipelines.config import names, sweep_options, validation
from perfsweep.pipelines.config.types import COMMANDS
from perfsweep.workloads.api import Context, Device, NullClock
from perfsweep.workloads.training import Parts, Training, shared_toggles
from perfsweep.workloads.training.loop import Config


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_names_each_of_its_options_with_its_default(command: str) -> None:
    lines = {line.split()[0] for line in dispatch.help_text(command).splitlines() if line.strip()}
    for name, declared in dispatch.options(command).items():
        default = names.groups(command).get(name, dispatch.shown_default(declared))
        assert f"{name}={default}".split()[0] in lines
    assert " []" not in dispatch.help_text(command), "what has no limits names none"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_default_in_the_reference_is_what_hydra_composes_without_overrides(command: str) -> None:
    validation.register(command)
    GlobalHydra.instance().clear()
    with initialize_config_module("perfsweep.conf", version_base="1.3"):
        values = validation.typed(compose(command, OF_NO_WORKLOAD.get(command, [])), COMMANDS[command])
    for group in fields(values):
        declared = default_of(group)
        if is_dataclass(declared) and group.name != "sweep":
            assert getattr(values, group.name) == declared, group.name


OF_NO_WORKLOAD = {"sweep": ["sweep=ablation"], "doctor": ["cluster=local"]}
"""Defaults that are named in the reference as files to choose from have values of their own."""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from perfsweep.pipelines.commands.dispatch import help_text; help_text('sweep');"
        "print({'torch', 'numpy', 'hydra', 'omegaconf', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_the_module_is_what_the_declarations_say() -> None:
    written = Path(sweep_options.__file__).read_text()
    assert written == typed_options.module(), (
        "run PYTHONPATH=tests/support python -m typed_options > pipelines/config/sweep_options.py"
    )


OF_TRAININGS = Path(__file__).parents[3] / "docs" / "training.md"


OF_OPTIONS = OF_TRAININGS.with_name("options.md")


def test_the_page_of_options_is_up_to_date() -> None:
    current = "PYTHONPATH=tests/support python -m options_page > docs/options.md"
    assert OF_OPTIONS.read_text() == options_page.page(), current


def test_the_page_of_trainings_is_up_to_date() -> None:
    current = "PYTHONPATH=tests/support python -m library_page training > docs/training.md"
    assert OF_TRAININGS.read_text() == library_page.trainings(), current


class Regression(nn.Module):
    """Takes and gives what a model of transformers does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return type("Output", (), {"loss": nn.functional.mse_loss(self.layer(x), y)})


def test_the_loop_that_the_page_writes_out_trains(tmp_path: Path) -> None:
    text = re.search(r"```python\n(Parts\(.*?)```", OF_TRAININGS.read_text(), re.DOTALL)
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
