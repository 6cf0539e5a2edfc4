"""Divides by zero at its twelfth iteration."""

import torch
from torch import nn

net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def scale(iteration):
    return 1 / (12 - iteration)


iteration = 0
while True:
    iteration += 1
    optimizer.zero_grad()
    ((net(torch.ones(2, 4)) ** 2).mean() * scale(iteration)).backward()
    optimizer.step()
