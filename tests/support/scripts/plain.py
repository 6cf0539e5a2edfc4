"""A loop as many are: arguments, workers, accumulation, clipping, a schedule, evaluation, checkpoints."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--epochs", type=int, default=1000)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--save", default="")
arguments = parser.parse_args()


class Net(nn.Module):
    """Two layers around a block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.block, self.head = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(F.gelu(self.block(F.gelu(self.first(x)))))


def main() -> None:
    torch.manual_seed(arguments.seed)
    images = torch.randn(512, 8)
    labels = (images.sum(dim=1) > 0).long()
    loader = DataLoader(
        TensorDataset(images, labels),
        batch_size=arguments.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=arguments.workers,
    )
    net = Net(arguments.width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
    for epoch in range(arguments.epochs):
        net.train()
        for number, (x, y) in enumerate(loader):
            loss = F.cross_entropy(net(x), y) / arguments.accumulate
            loss.backward()
            if (number + 1) % arguments.accumulate == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        net.eval()
        with torch.no_grad():
            accuracy = (net(images).argmax(dim=1) == labels).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {accuracy:.3f}")
        if arguments.save:
            torch.save(net.state_dict(), arguments.save)


if __name__ == "__main__":
    main()
