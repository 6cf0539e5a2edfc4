"""Changes its folder, and ends where it is told to."""

import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

os.chdir(tempfile.mkdtemp())
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ends = int(sys.argv[1]) if len(sys.argv) > 1 else 10**9
for iteration in range(ends):
    optimizer.zero_grad()
    (net(torch.ones(2, 4)) ** 2).mean().backward()
    optimizer.step()
    Path("progress.txt").write_text(str(iteration))
sys.exit(3)
