"""Distributed data parallel where torchrun's variables are set, alone otherwise."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

distributed = "RANK" in os.environ
if distributed:
    dist.init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(256, 8)
data = TensorDataset(x, (x.sum(dim=1) > 0).long())
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
sampler = None
if distributed:
    net = DistributedDataParallel(net)
    sampler = DistributedSampler(data, shuffle=False)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}, local {os.environ['LOCAL_RANK']}")
loader = DataLoader(data, batch_size=16 // (dist.get_world_size() if distributed else 1), sampler=sampler)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    for inputs, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
