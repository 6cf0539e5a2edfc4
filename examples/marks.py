"""The same training loop, which marks its iterations itself.

perfsweep finds the iterations of most scripts. Mark them where it cannot know what you count. This loop makes
two optimiser steps per batch, and one iteration is a batch. `perfsweep.steps(loader)` marks each batch;
`perfsweep.mark()` at the end of the loop's body does the same. Outside perfsweep both do nothing.

    perfsweep script marks.py
    perfsweep sweep workload=script workload.path=marks.py sweep=quick axes.amp=[bf16]

It also runs by itself: python marks.py --epochs=3
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import perfsweep

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--epochs", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(64, arguments.width), nn.GELU(), nn.Linear(arguments.width, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(arguments.epochs):
    for x, y in perfsweep.steps(loader):
        for half_x, half_y in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = nn.functional.cross_entropy(model(half_x), half_y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
