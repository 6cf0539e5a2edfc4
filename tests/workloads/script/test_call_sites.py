"""Where a script makes its loaders and optimisers, resets its gradients and calls its models."""

# Drives `call_sites`, `sight` and `user_files` of perfsweep.workloads.script.
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import Start, Write, run

from perfsweep.workloads.script.edits.patch import patch
from perfsweep.workloads.script.edits.site import Site

MODULE = """
from torch import nn, optim
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = optim.AdamW(model.parameters(),
                               lr=1e-3)

    def step(self, x):
        loss = self.model(x).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

def batches(data):
    return DataLoader(data, batch_size=4)
"""

SCRIPT = """
import torch, trainer
from torch import nn
é = "ü"; data = torch.ones(400, 3); loaders = [trainer.batches(data), trainer.batches(data)]
t = trainer.Trainer(nn.Linear(3, 1))
for epoch in range(100):
    for x in loaders[0]:
        t.step(x)
"""

Seen = Callable[..., list[Site]]


@pytest.fixture
def seen(start: Start, write: Write) -> Seen:
    """What a script shows until its second mark."""

    def look(text: str, **modules: str) -> list[Site]:
        for name, module in modules.items():
            write(module, f"{name}.py")
            sys.modules.pop(name, None)  # of another test's folder
        script: Any = run(start(write(text)), 1)
        return list(script.sight().sites)

    return look


def test_what_is_seen_becomes_a_patch_that_is_python(seen: Seen, tmp_path: Path) -> None:
    sites = seen(SCRIPT, trainer=MODULE)
    levels = {"num_workers": 2, "optimizer": "fused", "amp": "bf16", "compile": "default", "gc": "frozen"}
    done = patch(levels, sites, str(tmp_path / "train.py"), lambda file: Path(file).read_bytes())
    assert not done.advice
    module = done.files[str(tmp_path / "trainer.py")].decode()
    for line in (
        "        self.model.compile()",
        "                               lr=1e-3, fused=True)",
        "            loss = self.model(x).float().square().mean()",
        "    return DataLoader(data, batch_size=4, num_workers=2)",
    ):
        assert line in module.splitlines()
    assert "gc.freeze()\nfor epoch in" in done.files[str(tmp_path / "train.py")].decode()
