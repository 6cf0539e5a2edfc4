"""A loop with explicit marks: two changed lines."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import perfsweep

torch.manual_seed(0)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
while True:
    for (x,) in perfsweep.steps(loader):
        for _ in range(3):
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()
