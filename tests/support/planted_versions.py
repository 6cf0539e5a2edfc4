"""Repositories of sixteen commits in which one is the culprit, and comparisons of their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from git_repository import Planned, imported

COMMITS = 16
SLOWER = 1.05
"""Planted change of the time: 5 % more, or less where a faster commit is planted."""
CHANGED = 1.001
"""Planted change of results."""
REPEATS = 1000

TRAIN = """
import torch
import work
torch.manual_seed(0)
model = torch.nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(64, 32)
for step in range(1_000_000):
    work.burn(data)
    loss = (model(data).squeeze() - data.sum(1)).pow(2).mean() * work.SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

SCRIPT = ("workload=script", "workload.path=train.py")


def work(repeats: int = REPEATS, scale: float = 1.0, edit: int = 0) -> str:
    """A module that multiplies so often in each step, and scales the loss; an edit changes nothing else."""
    return (
        f'"""Edit {edit}."""\n\nSCALE = {scale}\n\ndef burn(x):\n'
        f"    for _ in range({repeats}):\n        x @ x.T\n"
    )


def line(folder: Path, first_planted: int, **planted: Any) -> Path:
    """A repository of a good commit and sixteen more, from one of which on `work` is another."""
    first = {"train.py": TRAIN, "work.py": work(), ".gitignore": "runs/\n"}
    commits = [Planned("good", first)]
    for number in range(1, COMMITS + 1):
        own = planted if number >= first_planted else {}
        commits.append(Planned(f"c{number}", {"work.py": work(edit=number, **own)}, (commits[-1].name,)))
    return imported(folder, commits)


def culprit(seed: int) -> int:
    """The number of the commit that is planted."""
    return int(np.random.default_rng(seed).integers(1, COMMITS + 1))


def is_right(subjects: list[str], planted: int) -> bool:
    """Whether a bisection found the culprit and nothing else."""
    return subjects == [f"c{planted}"]
