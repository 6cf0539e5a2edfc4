"""A loop with accelerate and accumulation."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
torch.manual_seed(0)
x = torch.randn(128, 8)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(net.parameters())
loader = DataLoader(TensorDataset(x, (x.sum(dim=1) > 0).long()), batch_size=8)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
while True:
    for inputs, labels in loader:
        with accelerator.accumulate(net):
            accelerator.backward(F.cross_entropy(net(inputs), labels))
            accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
