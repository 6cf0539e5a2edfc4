"""A script in a repository whose commits differ in known ways: counted work, results, or nothing."""

from __future__ import annotations

from pathlib import Path

from git_repository import begin, commit

TRAIN = """
import sys
import torch
import work
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int([*sys.argv, 100_000][1])):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
    work.burn()
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean() * work.SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def work(loops: int = 10_000, scale: float = 1.0, comment: str = "") -> str:
    """A module that counts to `loops` in each step, and scales the loss."""
    return f"SCALE = {scale}\n\ndef burn():\n    {comment}\n    for i in range({loops}):\n        pass\n"


def scripted(folder: Path) -> Path:
    """Make the repository; its commits are called base, prose, comment, slow, changed and broken."""
    root = begin(folder)
    commit(root, {"README.md": ""}, "empty")
    commit(root, {"train.py": TRAIN, "work.py": work()}, "base")
    commit(root, {"README.md": "said"}, "prose")
    commit(root, {"work.py": work(comment="# said")}, "comment")
    commit(root, {"work.py": work(loops=100_000)}, "slow")
    commit(root, {"work.py": work(scale=1.001)}, "changed")
    commit(root, {"train.py": "import torch\nimport work\nraise SystemExit('broken')\n"}, "broken")
    return root
