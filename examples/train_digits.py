"""An ordinary training script. perfsweep measures it unchanged.

Look at it first: what are its iterations, does it repeat itself, which toggles can act on it?

    perfsweep script train_digits.py

Then measure a toggle, here the fused kernel of the optimiser:

    perfsweep sweep workload=script workload.path=train_digits.py sweep=quick axes.optimizer=[fused]

It also runs by itself: python train_digits.py --epochs=3
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--epochs", type=int, default=20)
arguments = parser.parse_args()

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))
loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Linear(64, arguments.width),
    nn.GELU(),
    nn.Linear(arguments.width, arguments.width),
    nn.GELU(),
    nn.Linear(arguments.width, 10),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for epoch in range(arguments.epochs):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
