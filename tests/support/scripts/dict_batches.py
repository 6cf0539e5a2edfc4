"""Batches that are mappings, made by worker processes from rows of their own."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows with nested tensors."""

    def __len__(self):
        return 64

    def __getitem__(self, row):
        x = torch.full((4,), float(row))
        return {"inputs": {"x": x}, "label": row % 2, "name": f"row {row}"}


def main():
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    while True:
        for batch in DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=1):
            optimizer.zero_grad()
            F.cross_entropy(net(batch["inputs"]["x"]), batch["label"]).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
